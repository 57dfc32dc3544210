// The smallest program: which library is this, and what do its status codes mean?
//   cc version.c $(pkg-config --cflags --libs sonde) -o version && ./version
#include <sonde/status.h>
#include <sonde/version.h>
#include <stdio.h>
#include <string.h>

int main(void) {
    printf("sonde %s\n", sonde_version());
    for (int s = SONDE_OK; s <= SONDE_EINTERNAL; s++) printf("%2d  %s\n", s, sonde_status_name((sonde_status)s));
    if (strcmp(sonde_version(), SONDE_VERSION) != 0) {
        fprintf(stderr, "compiled for %s\n", SONDE_VERSION);
        return 1;
    }
    return 0;
}
