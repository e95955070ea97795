/* SPDX-License-Identifier: Apache-2.0
 *
 * CSV: one line for each size out of place and one in place, with plain numbers and no blanks.
 */
#include "bench/report/output.h"
#include "core/foundation/base/text.h"

void bench_csv_header(FILE *file)
{
    fputs("collective,bytes,count,type,op,root,in_place,time_us,algbw_gbytes_per_s,"
          "busbw_gbytes_per_s,wrong,min_us,median_us,mean_us,p99_us,max_us,algorithm,protocol,"
          "channels,transports,reference_us,ratio,reference_mode,reference_version,host_us,"
          "compared_host_us,reference_host_us\n",
          file);
}

static void write_half(FILE *file, const struct bench_setting *setting, const struct bench_row *row,
                       bool is_in_place)
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

void bench_csv_row(FILE *file, const struct bench_setting *setting, const struct bench_row *row)
{
    write_half(file, setting, row, false);
    write_half(file, setting, row, true);
}
