/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/tools/training.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define HIDDEN_UNIT          128
#define ALL_REDUCES_OF_LAYER 4 /* tensor parallel: two forward, two backward */

const char *const bench_strategy_names[BENCH_N_STRATEGIES] = {
    [BENCH_DATA_PARALLEL] = "data parallel",
    [BENCH_SHARDED] = "sharded (FSDP)",
    [BENCH_TENSOR_PARALLEL] = "tensor parallel",
};

/* Shapes: each model's published config.json. GPT-3: Brown et al., 2020, table 2.1. */
/* clang-format off */
const struct bench_model bench_models[] = {
    /* name        layers hidden feed_fwd keys vocabulary positions tied   biases */
    {"gpt2",          12,   768,   3072,   768,  50257, 1024, true,  true},
    {"gpt2-medium",   24,  1024,   4096,  1024,  50257, 1024, true,  true},
    {"gpt2-large",    36,  1280,   5120,  1280,  50257, 1024, true,  true},
    {"gpt2-xl",       48,  1600,   6400,  1600,  50257, 1024, true,  true},
    {"gpt3-175b",     96, 12288,  49152, 12288,  50257, 2048, true,  true},
    {"llama2-7b",     32,  4096,  11008,  4096,  32000,    0, false, false},
    {"llama2-13b",    40,  5120,  13824,  5120,  32000,    0, false, false},
    {"llama2-70b",    80,  8192,  28672,  1024,  32000,    0, false, false},
    {"llama3-1b",     16,  2048,   8192,   512, 128256,    0, true,  false},
    {"llama3-3b",     28,  3072,   8192,  1024, 128256,    0, true,  false},
    {"llama3-8b",     32,  4096,  14336,  1024, 128256,    0, false, false},
    {"llama3-70b",    80,  8192,  28672,  1024, 128256,    0, false, false},
    {"llama3-405b",  126, 16384,  53248,  1024, 128256,    0, false, false},
    {"mistral-7b",    32,  4096,  14336,  1024,  32000,    0, false, false},
    {"qwen2.5-7b",    28,  3584,  18944,   512, 152064,    0, false, true},
    {"qwen2.5-32b",   64,  5120,  27648,  1024, 152064,    0, false, true},
    {"qwen2.5-72b",   80,  8192,  29568,  1024, 152064,    0, false, true},
};
/* clang-format on */
const int bench_n_models = (int)(sizeof(bench_models) / sizeof(bench_models[0]));

static double params_of(const struct bench_model *model)
{
    const double hidden = model->hidden, keys = model->key_value;
    const bool is_gpt = model->positions > 0;
    const double attention = 2 * hidden * hidden + 2 * hidden * keys +
                             (model->has_biases ? hidden + 2 * keys : 0) + (is_gpt ? hidden : 0);
    const double feed_forward = (is_gpt ? 2.0 : 3.0) * hidden * model->feed_forward +
                                (is_gpt ? model->feed_forward + hidden : 0);
    const double norm = is_gpt ? 2 * hidden : hidden;
    const double embeddings =
        ((model->is_tied ? 1.0 : 2.0) * model->vocabulary + model->positions) * hidden;
    return model->n_layers * (attention + feed_forward + 2 * norm) + embeddings + norm;
}

const struct bench_model *bench_model_find(const char *name)
{
    for (int i = 0; i < bench_n_models; i++)
        if (strcmp(bench_models[i].name, name) == 0)
            return &bench_models[i];
    return NULL;
}

void bench_training_set_sizes(struct bench_bottleneck_options *options)
{
    struct bench_training *training = &options->training;
    const double layers = training->n_layers, hidden = training->hidden;
    const struct bench_model *model =
        options->model != NULL ? bench_model_find(options->model) : NULL;
    if (training->n_params > 0) { /* the nearest model, by ratio */
        model = &bench_models[0];
        for (int i = 1; i < bench_n_models; i++)
            if (fabs(log(params_of(&bench_models[i]) / training->n_params)) <
                fabs(log(params_of(model) / training->n_params)))
                model = &bench_models[i];
    } else if (model != NULL) {
        training->n_params = params_of(model);
    } else {
        training->n_params =
            layers * (12 * hidden * hidden + 13 * hidden) + options->vocabulary * hidden;
    }
    if (model != NULL && training->n_layers == 0 && training->hidden <= 0) {
        options->model = model->name;
        training->n_layers = model->n_layers;
        training->hidden = model->hidden;
    }
    if (training->n_layers == 0)
        training->n_layers = model->n_layers;
    if (training->hidden <= 0)
        training->hidden =
            HIDDEN_UNIT *
            fmax(1, round(sqrt(training->n_params / (12.0 * training->n_layers)) / HIDDEN_UNIT));
}

static int split(enum gyre_collective coll, double total, double part, double times,
                 struct bench_training_calls calls_out[BENCH_MAX_TRAINING_CALLS])
{
    const double n_whole = floor(total / part);
    const double rest = total - n_whole * part;
    int n = 0;
    if (n_whole > 0)
        calls_out[n++] = (struct bench_training_calls){coll, part, n_whole * times};
    if (rest > 0)
        calls_out[n++] = (struct bench_training_calls){coll, rest, times};
    return n;
}

int bench_training_calls(const struct bench_training *training, enum bench_strategy strategy,
                         struct bench_training_calls calls_out[BENCH_MAX_TRAINING_CALLS])
{
    const double model_bytes = training->n_params * training->dtype_bytes;
    const double token_bytes = training->hidden * training->dtype_bytes;
    const double layer_bytes = model_bytes / training->n_layers;
    const double group_tokens =
        training->n_tokens * training->n_tensor_ranks / (double)training->n_ranks;
    const double micro_batch = training->micro_batch_tokens;
    switch (strategy) {
    case BENCH_DATA_PARALLEL:
        return split(GYRE_COLL_ALL_REDUCE, model_bytes, training->bucket_bytes, 1, calls_out);
    case BENCH_TENSOR_PARALLEL:
        return split(GYRE_COLL_ALL_REDUCE, group_tokens * token_bytes,
                     (micro_batch > 0 ? fmin(micro_batch, group_tokens) : group_tokens) *
                         token_bytes,
                     (double)ALL_REDUCES_OF_LAYER * training->n_layers, calls_out);
    default:
        calls_out[0] = (struct bench_training_calls){GYRE_COLL_ALL_GATHER, layer_bytes,
                                                     2.0 * training->n_layers};
        calls_out[1] = (struct bench_training_calls){GYRE_COLL_REDUCE_SCATTER, layer_bytes,
                                                     training->n_layers};
        return 2;
    }
}

#ifdef GYRE_BENCH_WITH_JSON

#include "bench/report/json_add.h"
#include "core/foundation/base/util.h"

struct spans {
    struct span {
        double begin_us, end_us;
    } * at; /* sorted by begin */
    size_t n;
    uint32_t capacity;
};

static bool add_span(struct spans *spans, double begin_us, double end_us)
{
    if (!gyre_grow(&spans->at, &spans->capacity, spans->n + 1, sizeof(*spans->at)))
        return false;
    spans->at[spans->n++] = (struct span){begin_us, end_us};
    return true;
}

static int compare_spans(const void *left, const void *right)
{
    const struct span *a = left, *b = right;
    return a->begin_us < b->begin_us ? -1 : a->begin_us > b->begin_us;
}

/* Overlaps count once. */
static double covered_us(struct spans *spans)
{
    double sum_us = 0, until_us = -INFINITY;
    if (spans->n > 0)
        qsort(spans->at, spans->n, sizeof(*spans->at), compare_spans);
    for (size_t i = 0; i < spans->n; i++) {
        sum_us += fmax(spans->at[i].end_us - fmax(spans->at[i].begin_us, until_us), 0);
        until_us = fmax(until_us, spans->at[i].end_us);
    }
    return sum_us;
}

static struct json_object *member(struct json_object *object, const char *key)
{
    struct json_object *found = NULL;
    return json_object_is_type(object, json_type_object) &&
                   json_object_object_get_ex(object, key, &found)
               ? found
               : NULL;
}

static const char *text_of(struct json_object *object, const char *key)
{
    struct json_object *found = member(object, key);
    return json_object_is_type(found, json_type_string) ? json_object_get_string(found) : "";
}

/* @others: kernels that do not communicate. */
static gyre_status collect_kernels(struct json_object *events, struct spans *all,
                                   struct spans *others, struct spans *communication,
                                   double *n_steps)
{
    for (size_t i = 0; i < json_object_array_length(events); i++) {
        struct json_object *event = json_object_array_get_idx(events, i);
        const double begin_us = json_object_get_double(member(event, "ts"));
        const double us = json_object_get_double(member(event, "dur"));
        const char *category = text_of(event, "cat"), *name = text_of(event, "name");
        *n_steps += strcmp(category, "user_annotation") == 0 &&
                    strncmp(name, "ProfilerStep#", strlen("ProfilerStep#")) == 0;
        if (strcmp(category, "kernel") != 0)
            continue;
        if (!isfinite(begin_us) || !isfinite(us) || us < 0)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "the kernel %s has no time", name);
        struct spans *own = others;
        for (const char *at = name; *at != '\0'; at++)
            if (gyre_text_same_n(at, "nccl", 4) || gyre_text_same_n(at, "gyre", 4))
                own = communication;
        if (!add_span(all, begin_us, begin_us + us) || !add_span(own, begin_us, begin_us + us))
            return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for %zu kernels", all->n);
    }
    return GYRE_SUCCESS;
}

gyre_status bench_profile_read(const char *path, struct bench_profile *profile_out)
{
    struct spans all = {0}, others = {0}, communication = {0};
    struct json_object *root = NULL;
    double n_steps = 0, end_us = -INFINITY;
    GYRE_TRY(bench_json_read(path, &root));
    struct json_object *events = member(root, "traceEvents");
    gyre_status status = json_object_is_type(events, json_type_array)
                             ? collect_kernels(events, &all, &others, &communication, &n_steps)
                             : gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "it has no traceEvents");
    if (status == GYRE_SUCCESS && (communication.n == 0 || others.n == 0))
        status = gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                           "it has %zu kernels that communicate and %zu others; both are needed",
                           communication.n, others.n);
    if (status == GYRE_SUCCESS) {
        n_steps = fmax(n_steps, 1);
        const double all_us = covered_us(&all), compute_us = covered_us(&others);
        for (size_t i = 0; i < all.n; i++)
            end_us = fmax(end_us, all.at[i].end_us);
        *profile_out = (struct bench_profile){
            .n_steps = n_steps,
            .step_us = (end_us - all.at[0].begin_us) / n_steps,
            .compute_us = compute_us / n_steps,
            .communication_us = covered_us(&communication) / n_steps,
            .exposed_us = (all_us - compute_us) / n_steps,
        };
    }
    free(all.at);
    free(others.at);
    free(communication.at);
    json_object_put(root);
    return status == GYRE_SUCCESS ? status : gyre_fail_context(status, "%s", path);
}

#else

gyre_status bench_profile_read(const char *path, struct bench_profile *profile_out)
{
    (void)path;
    (void)profile_out;
    return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                     "--trace: built without json-c; install libjson-c-dev and build again");
}

#endif
