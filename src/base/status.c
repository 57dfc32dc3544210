// Status codes as words, and the thread's last message.
// Invariant: the message is always a valid NUL-terminated string; recording one never allocates, so running out of
// memory can be reported too. Too long a message is cut, never dropped.
#include "base/base.h"

#include <string.h>

enum { MESSAGE_SIZE = 2048 };

static _Thread_local char message[MESSAGE_SIZE];

const char *sonde_error_message(void) {
    return message;
}

const char *sonde_status_name(sonde_status s) {
    switch (s) {
    case SONDE_OK: return "ok";
    case SONDE_EUSAGE: return "usage";
    case SONDE_ESYNTAX: return "syntax";
    case SONDE_ENAME: return "name";
    case SONDE_ETYPE: return "type";
    case SONDE_ERANGE: return "range";
    case SONDE_ESHAPE: return "shape";
    case SONDE_EINPUT: return "input";
    case SONDE_EIO: return "io";
    case SONDE_ENOMEM: return "memory";
    case SONDE_EUNSUPPORTED: return "unsupported";
    case SONDE_EINTERRUPTED: return "interrupted";
    case SONDE_EDIVERGED: return "diverged";
    case SONDE_EINTERNAL: return "internal";
    }
    return "unknown";
}

sonde_status snd_fail(sonde_status code, const char *file, int line, const char *fmt, ...) {
    // The arguments may point into the current message (a caller quoting it), so print aside first.
    char text[MESSAGE_SIZE];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    memcpy(message, text, strlen(text) + 1);
    // Only our own mistakes need the place in the source; for everybody else it is noise.
    if (code == SONDE_EINTERNAL) snd_fail_prefix(code, "%s:%d: ", file, line);
    return code;
}

sonde_status snd_fail_prefix(sonde_status code, const char *fmt, ...) {
    char text[MESSAGE_SIZE];
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const size_t used = n < 0 ? 0 : (size_t)n < sizeof text ? (size_t)n : sizeof text - 1;
    snprintf(text + used, sizeof text - used, "%s", message);
    memcpy(message, text, strlen(text) + 1);
    return code;
}
