// Status codes and messages shared by every part of the library.
// A call that can fail because of the outside returns a sonde_status; the message stays with the calling thread
// until the next failure there. The library never prints, exits or aborts.
#ifndef SONDE_STATUS_H
#define SONDE_STATUS_H

#if defined(__GNUC__)
#define SONDE_API __attribute__((visibility("default")))
#define SONDE_MUST_CHECK __attribute__((warn_unused_result))
#else
#define SONDE_API
#define SONDE_MUST_CHECK
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum sonde_status {
    SONDE_OK = 0,
    SONDE_EUSAGE,        ///< a bad word on the command line: unknown option, missing argument
    SONDE_ESYNTAX,       ///< text that does not parse: a formula, YAML, JSON
    SONDE_ENAME,         ///< an unknown or unassigned name: key, function, wiring, tensor, metric
    SONDE_ETYPE,         ///< a word where a number belongs, and the like
    SONDE_ERANGE,        ///< a value outside its range
    SONDE_ESHAPE,        ///< shapes that do not fit each other
    SONDE_EINPUT,        ///< a file whose contents are wrong: truncated, inconsistent, missing tensors
    SONDE_EIO,           ///< the system refused: no such file, no space
    SONDE_ENOMEM,        ///< an allocation failed
    SONDE_EUNSUPPORTED,  ///< right, but beyond what this build or family can do
    SONDE_EINTERRUPTED,  ///< stopped by the user
    SONDE_EDIVERGED,     ///< training left the finite numbers
    SONDE_EINTERNAL      ///< we are wrong; please report
} sonde_status;

/// One sentence about the calling thread's last failure: the thing, what was found, what was needed.
/// Never NULL; borrowed, valid until the next failing call of this thread.
SONDE_API const char *sonde_error_message(void);

/// Short name of a code, e.g. "shape".
SONDE_API const char *sonde_status_name(sonde_status s);

#ifdef __cplusplus
}
#endif
#endif
