// A model as sonde knows it: a preset, a spec file, a catalogue key or a formula, with key=value overrides, resolved and
// checked. docs/formulas.md, section 5, has the keys; section 2 the language.
#ifndef SONDE_SPEC_H
#define SONDE_SPEC_H

#include <sonde/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sonde_spec sonde_spec;

/// Resolves `spec` in the order: YAML or JSON file, preset, catalogue key, formula (text with '='). `overrides` are n
/// strings "key=value", applied in order. *out is the caller's, to be destroyed; it is not changed on failure.
/// errors  SONDE_ESYNTAX, SONDE_ENAME, SONDE_ETYPE, SONDE_ERANGE, SONDE_ESHAPE: what is wrong, where, the nearest name;
///         SONDE_EIO: the file cannot be read; SONDE_ENOMEM
SONDE_API sonde_status sonde_spec_load(const char *spec, const char *const *overrides, int n, sonde_spec **out) SONDE_MUST_CHECK;
/// NULL is fine.
SONDE_API void sonde_spec_destroy(sonde_spec *s);
/// The resolved spec as YAML that loads back to the same model. Borrowed from s; NULL when memory ran out.
SONDE_API const char *sonde_spec_yaml(sonde_spec *s);
/// The wiring as text, one section a line. Borrowed from s; NULL when memory ran out.
SONDE_API const char *sonde_spec_formula(sonde_spec *s);

#ifdef __cplusplus
}
#endif
#endif
