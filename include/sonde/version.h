// The version this header belongs to, and the one of the library that was linked. CMakeLists.txt reads the three
// numbers from here.
#ifndef SONDE_VERSION_H
#define SONDE_VERSION_H

#include <sonde/status.h>

#define SONDE_VERSION_MAJOR 0
#define SONDE_VERSION_MINOR 1
#define SONDE_VERSION_PATCH 0
#define SONDE_VERSION "0.1.0"

#ifdef __cplusplus
extern "C" {
#endif

/// Version of the library in use, e.g. "0.1.0". Static text.
SONDE_API const char *sonde_version(void);

#ifdef __cplusplus
}
#endif
#endif
