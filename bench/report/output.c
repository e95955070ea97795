/* SPDX-License-Identifier: Apache-2.0
 *
 * Header, columns and footer are nccl-tests', byte for byte, because scripts parse them. Only
 * --compare, --limits, --host-time and -S add columns, and -C on GPUs a line to the footer.
 */
#include "bench/report/output.h"

#include "bench/driver/option_table.h"
#include "bench/report/table_file.h"
#include "core/foundation/base/text.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct bench_output {
    const struct bench_setting *setting;
    struct bench_table_file csv; /* zeros = none */
    struct bench_json *json;
    struct bench_tidy *tidy; /* of all of --sweep, NULL = no sweep */
};

#define TIME_FORMAT "%Y-%m-%d %H:%M:%S"

/* Up to two decimals, if possible within `width`. */
static void print_figure(double value, int width)
{
    int n_digits = 0;
    for (double power = 1; value >= power; power *= 10)
        n_digits++;
    if (n_digits < width - 2)
        printf("  %*.2f", width, value);
    else if (n_digits < width - 1)
        printf("  %*.1f", width, value);
    else if (n_digits < width + 1)
        printf("  %*.0f", width, value);
    else
        printf("  %*.*e", width, width >= 7 ? 1 : 0, value);
}

static void print_timing(const struct bench_timing *timing)
{
    print_figure(timing->time_us, 7);
    print_figure(timing->algbw, 6);
    print_figure(timing->busbw, 6);
    if (timing->n_wrong < 0)
        printf("    N/A");
    else
        printf("  %6g", (double)timing->n_wrong);
}

static void print_settings(const struct bench_setting *setting)
{
    const struct bench_options *options = setting->options;
    const bool is_factor = options->step_factor > 1;
    int library = 0;
    (void)gyre_get_version(&library);
    printf("# gyre version %d.%d.%d gyre-headers=%d gyre-library=%d\n", library / 10000,
           library / 100 % 100, library % 100, GYRE_VERSION, library);
    printf("# Collective test starting: %s\n", setting->kind->name);
    printf("# nThread %d nGpus %d minBytes %zu maxBytes %zu step: %zu(%s) warmup iters: %d iters: "
           "%d agg iters: %d validation: %d graph: %d\n",
           options->n_threads, options->n_gpus, options->min_bytes, options->max_bytes,
           is_factor ? (size_t)options->step_factor : options->step_bytes,
           is_factor ? "factor" : "bytes", options->n_warmup, options->n_iters,
           options->n_aggregated, options->n_checks, options->n_graph_launches);
    if (options->is_blocking)
        printf("# Blocking Enabled: wait for completion and barrier after each collective \n");
    printf("#\n# Using devices\n");
    for (int i = 0; i < setting->n_ranks; i++) {
        const struct bench_place *place = &setting->places[i];
        printf("#  Rank %2d Group %2d Pid %6d on %10s device %2d [%s] %s\n", place->rank, 0,
               place->pid, place->host, place->device, place->pci, place->device_text);
    }
    if (setting->reference[0] != '\0')
        printf("# Comparing with %s\n", setting->reference);
    if (setting->limit.gbytes_per_s > 0)
        printf("# Limit of busbw: %.1f GB/s, %s of %s\n", setting->limit.gbytes_per_s,
               setting->limit.ceiling, options->limits_path);
}

static void print_columns(const struct bench_setting *setting)
{
    const struct bench_options *options = setting->options;
    const char *time_name = options->is_cputime ? "cputime" : "time";
    const char *stamp = options->has_timestamps ? "timestamp" : "";
    const char *format = options->has_timestamps ? TIME_FORMAT : "";
    const int width = options->has_timestamps ? 19 : 0;
    const bool compares = options->compare != NULL;
    const bool has_limit = setting->limit.gbytes_per_s > 0;
    printf("#\n");
    printf(
        "# %10s  %12s  %8s  %6s  %6s           out-of-place                       in-place       "
        "   ",
        "", "", "", "", "");
    if (has_limit) /* after the time stamp's column */
        printf("%*s  %% of limit", width, "");
    if (options->has_host_time)
        printf("  host's time%s", compares ? "               " : "     ");
    if (compares)
        printf("  median of %d rounds", options->n_rounds);
    printf("\n# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %6s  %7s  %6s  %6s  %6s %*s", "size",
           "count", "type", "redop", "root", time_name, "algbw", "busbw", "#wrong", time_name,
           "algbw", "busbw", "#wrong", width, stamp);
    if (has_limit)
        printf("  %5s  %5s", "out", "in");
    if (options->has_host_time)
        printf("  %7s  %7s", "out", "in");
    if (options->has_host_time && compares)
        printf("  %7s", options->compare);
    if (compares)
        printf("  %9s  %9s  %6s  %9s  %9s%s", "gyre", options->compare, "ratio", "p99 gyre", "p99",
               options->nccl_mode == BENCH_NCCL_BEST ? "        mode" : "");
    printf("\n# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %6s  %7s  %6s  %6s  %6s %*s", "(B)",
           "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "",
           width, format);
    if (has_limit)
        printf("  %5s  %5s", "(%)", "(%)");
    if (options->has_host_time)
        printf("  %7s  %7s%s", "(us)", "(us)", compares ? "     (us)" : "");
    if (compares)
        printf("  %9s  %9s  %6s  %9s  %9s", "(us)", "(us)", "", "(us)", "(us)");
    printf("\n");
}

unsigned bench_n_hosts(const struct bench_setting *setting)
{
    unsigned n = 0;
    for (int i = 0; i < setting->n_ranks; i++) {
        int same = 0;
        while (strcmp(setting->places[same].host, setting->places[i].host) != 0)
            same++;
        n += same == i;
    }
    return n;
}

int bench_n_reference_version(const struct bench_setting *setting)
{
    return (int)strcspn(setting->reference, ",");
}

static void write_csv_half(FILE *file, const struct bench_setting *setting,
                           const struct bench_row *row, bool is_in_place)
{
    const struct bench_timing *timing = is_in_place ? &row->in_place : &row->out_of_place;
    const struct gyre_collective_traits *traits = &gyre_collectives[row->what.coll];
    fprintf(file, "%s,%zu,%zu,%s,%s,%d,%d,%.3f,%.6f,%.6f,", traits->name, row->what.n_bytes,
            row->what.count, gyre_dtype_names[row->what.dtype],
            traits->reduces ? bench_op_name(&row->what) : "",
            traits->has_root && row->what.coll != GYRE_COLL_SEND_RECV ? row->what.root : -1,
            is_in_place, timing->time_us, timing->algbw, timing->busbw);
    if (timing->n_wrong >= 0)
        fprintf(file, "%lld", (long long)timing->n_wrong);
    fprintf(file, ",%.3f,%.3f,%.3f,%.3f,%.3f,", timing->us.min, timing->us.median, timing->us.mean,
            timing->us.p99, timing->us.max);
    gyre_text_put_csv(file, row->plan.algorithm);
    fprintf(file, ",%s,%u,", row->plan.proto, row->plan.n_channels);
    gyre_text_put_csv(file, row->plan.transports);
    fputc(',', file);
    if (row->comparison.is_present && !is_in_place) {
        char reference[128];
        snprintf(reference, sizeof(reference), "%.*s", bench_n_reference_version(setting),
                 setting->reference);
        fprintf(file, "%.3f,%.4f,%s,", row->comparison.reference_us, row->comparison.ratio,
                row->comparison.mode_names[row->comparison.mode]);
        gyre_text_put_csv(file, reference);
    } else {
        fputs(",,,", file);
    }
    fprintf(file, ",%.3f", timing->host_us);
    if (row->comparison.is_present && !is_in_place)
        fprintf(file, ",%.3f,%.3f", row->comparison.gyre_host_us,
                row->comparison.reference_host_us);
    else
        fputs(",,", file);
    fputc('\n', file);
}

gyre_status bench_output_open(const struct bench_setting *setting, struct bench_output **output_out)
{
    struct bench_output *output = calloc(1, sizeof(*output));
    if (output == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for output");
    output->setting = setting;
    gyre_status status = GYRE_SUCCESS;
    if (setting->options->json_path != NULL)
        GYRE_TRY_GOTO(status, bench_json_open(setting, &output->json), free_output);
    if (setting->options->csv_path != NULL) {
        GYRE_TRY_GOTO(
            status, bench_table_file_open("--csv", setting->options->csv_path, false, &output->csv),
            free_output);
        fputs("collective,bytes,count,type,op,root,in_place,time_us,algbw_gbytes_per_s,"
              "busbw_gbytes_per_s,wrong,min_us,median_us,mean_us,p99_us,max_us,algorithm,protocol,"
              "channels,transports,reference_us,ratio,reference_mode,reference_version,host_us,"
              "compared_host_us,reference_host_us\n",
              output->csv.file);
    }
    if (setting->options->sweep_csv_path != NULL)
        GYRE_TRY_GOTO(status,
                      bench_tidy_open(setting->options->sweep_csv_path,
                                      setting->options->appends_to_sweep, &output->tidy),
                      free_output);
    print_settings(setting);
    print_columns(setting);
    GYRE_TRY_GOTO(status, bench_streams_flush(), free_output);
    *output_out = output;
    return GYRE_SUCCESS;
free_output:
    (void)bench_tidy_close(output->tidy);
    (void)bench_table_file_close(&output->csv);
    (void)bench_json_close(output->json, NULL);
    free(output);
    return status;
}

static void print_row(const struct bench_setting *setting, const struct bench_row *row)
{
    const struct gyre_collective_traits *traits = &gyre_collectives[row->what.coll];
    const bool has_root = traits->has_root && row->what.coll != GYRE_COLL_SEND_RECV;
    printf("%12zu  %12zu  %8s  %6s  %6d", row->what.n_bytes, row->what.count,
           gyre_dtype_names[row->what.dtype], traits->reduces ? bench_op_name(&row->what) : "none",
           has_root ? row->what.root : -1);
    print_timing(&row->out_of_place);
    print_timing(&row->in_place);
    if (setting->options->has_timestamps) {
        char stamp[32];
        const time_t now = time(NULL);
        struct tm parts;
        strftime(stamp, sizeof(stamp), TIME_FORMAT, localtime_r(&now, &parts));
        printf("%21s", stamp);
    }
    if (setting->limit.gbytes_per_s > 0)
        printf("   %5.1f  %5.1f", 100 * row->out_of_place.busbw / setting->limit.gbytes_per_s,
               100 * row->in_place.busbw / setting->limit.gbytes_per_s);
    const struct bench_comparison *compared = &row->comparison;
    if (setting->options->has_host_time)
        printf("   %7.2f  %7.2f", row->out_of_place.host_us, row->in_place.host_us);
    if (setting->options->has_host_time && compared->is_present)
        printf("  %7.2f", compared->reference_host_us);
    if (compared->is_present)
        printf("   %9.2f  %9.2f  %6.2f  %9.2f  %9.2f", compared->gyre_us, compared->reference_us,
               compared->ratio, compared->gyre_p99_us, compared->reference_p99_us);
    if (compared->n_modes > 1)
        printf("  %10s", compared->mode_names[compared->mode]);
    printf("\n");
}

gyre_status bench_output_row(struct bench_output *output, const struct bench_row *row)
{
    print_row(output->setting, row);
    GYRE_TRY(bench_streams_flush());
    if (output->csv.file != NULL) {
        write_csv_half(output->csv.file, output->setting, row, false);
        write_csv_half(output->csv.file, output->setting, row, true);
        GYRE_TRY(bench_table_file_put(&output->csv));
    }
    if (output->json != NULL)
        GYRE_TRY(bench_json_row(output->json, row));
    const struct bench_tidy_row line = {.engine = "gyre",
                                        .machine = output->setting->places[0].host,
                                        .device = output->setting->device,
                                        .fabric = "",
                                        .dtype = gyre_dtype_names[row->what.dtype],
                                        .n_ranks = (unsigned)output->setting->n_ranks,
                                        .n_hosts = bench_n_hosts(output->setting),
                                        .coll = row->what.coll,
                                        .algorithm = row->plan.algorithm,
                                        .proto = row->plan.proto,
                                        .n_channels = row->plan.n_channels,
                                        .n_bytes = row->what.n_bytes,
                                        .time_us = row->out_of_place.time_us};
    return bench_tidy_row(output->tidy,
                          &line); /* last: success means that the sweep's CSV has a row */
}

gyre_status bench_output_close(struct bench_output *output, const struct bench_summary *summary)
{
    if (output == NULL)
        return GYRE_SUCCESS;
    const char *verdict = "";
    if (summary->least_busbw >= 0)
        verdict =
            summary->busbw < summary->least_busbw * 0.9 || summary->has_failed ? "FAILED" : "OK";
    if (summary->is_interrupted)
        printf("# Interrupted: what follows is of the sizes above\n");
    if (summary->has_failed)
        printf("# Ended by an error: what follows is of the sizes above\n");
    printf("# %-20s : %lld %s\n", "Out of bounds values", (long long)summary->n_wrong,
           summary->n_wrong != 0 || summary->has_failed ? "FAILED" : "OK");
    printf("# %-20s : %g %s\n", "Avg bus bandwidth", summary->busbw, verdict);
    if (summary->launch_us > 0)
        printf("# %-20s : %.2f us, a call takes %.2f us more\n", "Empty launch", summary->launch_us,
               summary->time_us - summary->launch_us);
    printf("#\n# Collective test concluded: %s\n#\n", output->setting->kind->name);
    gyre_status status = bench_streams_flush(); /* an interrupted mpirun soon kills this process */
    const gyre_status closed = bench_json_close(output->json, summary);
    status = status != GYRE_SUCCESS ? status : closed;
    const bool is_cut_short = summary->has_failed || summary->is_interrupted;
    if (output->csv.file != NULL && !is_cut_short && status == GYRE_SUCCESS)
        status = bench_table_file_put(&output->csv); /* if there was no row */
    const gyre_status closed_csv = bench_table_file_close(&output->csv);
    status = status != GYRE_SUCCESS ? status : closed_csv;
    const gyre_status tidied = bench_tidy_close(output->tidy);
    status = status != GYRE_SUCCESS ? status : tidied;
    free(output);
    return status;
}
