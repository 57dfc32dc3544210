// The version the library was built as: a program may have been compiled against another one.
#include <sonde/version.h>

#define TEXT_OF(x) #x
#define TEXT(x)    TEXT_OF(x)
_Static_assert(sizeof SONDE_VERSION ==
                   sizeof TEXT(SONDE_VERSION_MAJOR) "." TEXT(SONDE_VERSION_MINOR) "." TEXT(SONDE_VERSION_PATCH),
               "SONDE_VERSION must spell the three numbers");

const char *sonde_version(void) {
    return SONDE_VERSION;
}
