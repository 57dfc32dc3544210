// What computing again costs: steps of one model under every setting of recompute, in turns, in one process.
// Usage: recompute_bench SOURCE_DIR [key=value ...]: GPT-2's keys, settings of training (8 x 256 tokens unless said), rounds
// and threads. The first round touches memory and is not counted. Processor time is that of all threads: it says more where other
// work goes on.
#include "train/train.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WAYS = 3, MOST = 64 };
static const char *const WORDS[WAYS] = {"none", "norms", "layers"};

typedef struct bench {
    snd_arena *arena;
    snd_spec *spec;
    snd_set *set;
    snd_train_settings s;
    const char *model[MOST];
    int n_model, rounds, threads;
} bench;

static void fail(sonde_status s) {
    if (s == SONDE_OK) return;
    fprintf(stderr, "recompute_bench: %s\n", sonde_error_message());
    exit(1);
}

// A word of the command line: one of our own, a setting of training, else a key of the model.
static void take(bench *b, const char *word) {
    const char *eq = strchr(word, '=');
    const int n = eq ? (int)(eq - word) : 0;
    char key[32];
    snprintf(key, sizeof key, "%.*s", n, word);
    if (!strcmp(key, "rounds"))
        b->rounds = atoi(eq + 1);
    else if (!strcmp(key, "threads"))
        b->threads = atoi(eq + 1);
    else if (eq && snd_train_setting(&b->s, "", key, eq + 1) == SONDE_OK)
        return;
    else if (b->n_model < MOST)
        b->model[b->n_model++] = word;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static double median(double *x, int n) {
    qsort(x, (size_t)n, sizeof *x, by_value);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

static void run(const bench *b) {
    snd_trainer *t[WAYS];
    double seconds[WAYS][MOST], ratio[WAYS][MOST], cpu[WAYS][MOST], cpu_ratio[WAYS][MOST], loss[WAYS];
    for (int w = 0; w < WAYS; w++) {
        snd_train_settings s = b->s;
        const snd_trainer_opts o = {.dtype = SND_F32, .threads = b->threads};
        s.recompute = WORDS[w];
        fail(snd_trainer_create(b->spec, &s, b->set, &o, &t[w]));
    }
    for (int r = -1; r < b->rounds; r++) {
        for (int k = 0; k < WAYS; k++) {
            const int w = (k + r + 1) % WAYS; // nobody always first
            snd_step step;
            const clock_t start = clock();
            fail(snd_trainer_step(t[w], &step));
            loss[w] = step.loss;
            if (r < 0) continue;
            seconds[w][r] = step.seconds;
            cpu[w][r] = (double)(clock() - start) / CLOCKS_PER_SEC;
        }
        for (int w = 0; w < WAYS && r >= 0; w++) {
            ratio[w][r] = seconds[w][r] / seconds[0][r];
            cpu_ratio[w][r] = cpu[w][r] / cpu[0][r];
        }
        if (r < 0) puts("memory is there");
        fflush(stdout);
    }
    for (int w = 0; w < WAYS; w++) {
        const snd_train_cost c = snd_trainer_cost(t[w]);
        printf("%-7s %8.3f s (%.3f of none's), processor %8.3f s (%.3f)  %7.1f MB  %.4g FLOPs (%.3f)  loss %.17g\n",
               WORDS[w], median(seconds[w], b->rounds), median(ratio[w], b->rounds), median(cpu[w], b->rounds),
               median(cpu_ratio[w], b->rounds), (double)snd_train_cost_bytes(&c) / 1e6, c.flops,
               c.flops / (c.flops - c.flops_again), loss[w]);
    }
    for (int w = 0; w < WAYS; w++) snd_trainer_destroy(t[w]);
}

int main(int argc, char **argv) {
    bench b = {.arena = snd_arena_create(), .s = snd_train_defaults(), .rounds = 3, .threads = 2};
    static const char *const usual[] = {"batch=8", "tokens=256", "monitor_every=0", "lr=1e-4"};
    if (argc < 2 || !b.arena) return 2;
    for (int i = 0; i < 4; i++) take(&b, usual[i]);
    for (int i = 2; i < argc; i++) take(&b, argv[i]);
    if (b.rounds < 1 || b.rounds > MOST) return 2;
    snd_data_settings d = snd_data_defaults();
    d.path = snd_arena_printf(b.arena, "%s/data/austen/austen.txt", argv[1]);
    fail(snd_set_open(&d, SND_TASK_LM, &b.set));
    fail(snd_spec_load(b.arena, "gpt2", b.model, b.n_model, &b.spec));
    fail(snd_train_resolve(&b.s, b.spec));
    run(&b);
    snd_set_close(b.set);
    snd_arena_destroy(b.arena);
    return 0;
}
