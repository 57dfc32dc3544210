// The frame around every verb: set up, parse, run, turn the status into text and an exit code. The only place where an
// error is printed.
#include "cli/inner.h"

#include <errno.h>
#include <locale.h>
#include <string.h>

// A preset cannot be at fault for what stands beside it.
static bool spec_from_file(const snd_cli *c) {
    return c->spec && !c->spec->from_command_line && !(c->spec_word && snd_preset_find(c->spec_word));
}

static int exit_code(const snd_cli *c, sonde_status s) {
    switch (s) {
    case SONDE_OK: return c->exit_code;
    case SONDE_EDIVERGED: return 4;
    case SONDE_EINTERRUPTED: return 130;
    case SONDE_EUSAGE: return c->file_at_fault ? 3 : 2;
    case SONDE_ESYNTAX:
    case SONDE_ENAME:
    case SONDE_ETYPE:
    case SONDE_ERANGE:
    case SONDE_ESHAPE:
    case SONDE_EUNSUPPORTED: return c->file_at_fault || spec_from_file(c) ? 3 : 2;
    default: return 3;
    }
}

static void report_error(const snd_cli *c, sonde_status s) {
    fflush(stdout);
    const bool red = c->color_err;
    const char *verb = c->verb ? c->verb->name : NULL;
    char text[2048]; // a message quotes files: what would be an order to the terminal is shown as '?'
    snprintf(text, sizeof text, "%s", s == SONDE_EINTERRUPTED ? "interrupted" : sonde_error_message());
    for (char *p = text; *p; p++)
        if (((unsigned char)*p < 0x20 && *p != '\n') || *p == 0x7F) *p = '?';
    fprintf(stderr, "sonde%s%s: %s%s%s\n", verb ? " " : "", verb ? verb : "", red ? "\033[1;31m" : "", text,
            red ? "\033[0m" : "");
    if (s == SONDE_EINTERNAL) fputs("sonde: this is a fault of the program; please report the command line\n", stderr);
}

static sonde_status dispatch(snd_cli *c, int argc, char **argv) {
    bool help, version;
    SND_TRY(snd_args_parse(c, argc, argv, &help, &version));
    if (snd_opt_flag(c, "no-color")) c->color = c->color_err = false;
    c->json = snd_opt_flag(c, "json");
    c->csv = snd_opt_flag(c, "csv");
    c->quiet = snd_opt_flag(c, "quiet");
    c->full = snd_opt_flag(c, "full");
    c->out_dir = snd_opt_str(c, "out", NULL);
    if (version && !help) {
        snd_print(c, "sonde %s\n", sonde_version());
        return SONDE_OK;
    }
    if (help && c->verb)
        snd_help_verb(c, c->verb);
    else if (help)
        snd_help_top(c);
    if (help) return SONDE_OK;
    SND_FAIL_IF(c->json && c->csv, SONDE_EUSAGE, "--json and --csv exclude each other");
    return c->verb->run(c);
}

// A full disk or a closed pipe shows up only when the last bytes are written.
static int flush(const snd_cli *c, int code) {
    errno = 0;
    const bool failed = fflush(stdout) != 0 || ferror(stdout);
    if (!failed) return code;
    fprintf(stderr, "sonde%s%s: standard output: %s\n", c->verb ? " " : "", c->verb ? c->verb->name : "",
            strerror(c->out_errno ? c->out_errno : errno));
    return code ? code : 3;
}

int snd_cli_main(int argc, char **argv, snd_stop *stop) {
    setlocale(LC_CTYPE, ""); // to learn whether the terminal speaks UTF-8; numbers keep the C locale's ways
    snd_cli c = {.arena = snd_arena_create(), .stop = stop};
    if (!c.arena) {
        fputs("sonde: out of memory\n", stderr);
        return 3;
    }
    snd_terminal_init(&c);
    sonde_status s;
    if (argc < 2) {
        snd_help_top(&c);
        s = SONDE_OK;
        c.exit_code = 2;
    } else {
        s = dispatch(&c, argc, argv);
    }
    if (s == SONDE_EIO && stop && stop->flag) s = SONDE_EINTERRUPTED; // while waiting for a file
    if (s != SONDE_OK) report_error(&c, s);
    const int code = flush(&c, exit_code(&c, s));
    snd_free(c.spec_text.data);
    snd_arena_destroy(c.arena);
    return code;
}
