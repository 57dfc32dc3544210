// Theory from C: what happens to the stream and the gradient of a wiring of one's own, and what is wrong with it.
//   cc predict.c $(pkg-config --cflags --libs sonde) -o predict && ./predict
#include <sonde/sonde.h>
#include <stdio.h>

static int fail(void) {
    fprintf(stderr, "predict: %s\n", sonde_error_message());
    return 1;
}

int main(void) {
    static const char *const overrides[] = {"layers=48", "width=512"};
    const sonde_lab_opts opts = {0};
    sonde_spec *spec = NULL;
    sonde_record *record = NULL;
    if (sonde_spec_load("each: x = x + F(N(x))/sqrt(2)  out: x = N(x)", overrides, 2, &spec) != SONDE_OK) return fail();
    if (sonde_predict(spec, &opts, &record) != SONDE_OK) return fail();
    printf("%s\n", sonde_spec_formula(spec));
    for (int layer = 0; layer < 48; layer += 12) {
        char name[32];
        sonde_metric q, gq;
        snprintf(name, sizeof name, "layers.%d.x", layer);
        if (sonde_record_metric(record, 0, name, "q", &q) != SONDE_OK) return fail();
        if (sonde_record_metric(record, 0, name, "gq", &gq) != SONDE_OK) return fail();
        printf("%-12s log10 of the mean square %7.4f   of the gradient's %7.4f\n", name, q.predicted, gq.predicted);
    }
    for (int i = 0; i < sonde_record_verdicts(record); i++) {
        sonde_verdict v;
        if (sonde_record_verdict(record, i, &v) != SONDE_OK) return fail();
        printf("%s at %s: %s\n", v.level, v.where ? v.where : "the model", v.why ? v.why : v.rule);
    }
    sonde_record_destroy(record);
    sonde_spec_destroy(spec);
    return 0;
}
