/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/report/tidy.h"

#include "bench/report/bus_factor.h"
#include "bench/report/table_file.h"
#include "core/foundation/base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct bench_tidy {
    struct bench_table_file table;
    char version[32];
    char date[32];
};

gyre_status bench_tidy_open(const char *path, bool appends, struct bench_tidy **tidy_out)
{
    const time_t now = time(NULL);
    struct tm parts;
    int library = 0;
    struct bench_tidy *tidy = calloc(1, sizeof(*tidy));
    if (tidy == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for --csv %s", path);
    const gyre_status status = bench_table_file_open("--csv", path, appends, &tidy->table);
    if (status != GYRE_SUCCESS) {
        free(tidy);
        return status;
    }
    (void)gyre_get_version(&library);
    snprintf(tidy->version, sizeof(tidy->version), "%d.%d.%d", library / 10000, library / 100 % 100,
             library % 100);
    strftime(tidy->date, sizeof(tidy->date), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &parts));
    FILE *file = tidy->table.file;
    if (!appends || fseek(file, 0, SEEK_END) != 0 || ftell(file) <= 0) /* it may be a pipe */
        fputs("engine,version,date,machine,device,fabric,ranks,hosts,collective,dtype,algorithm,"
              "protocol,channels,bytes,time_us,busbw_gbytes_per_s,ratio,ratio_low,ratio_high\n",
              file);
    *tidy_out = tidy;
    return GYRE_SUCCESS;
}

static void put_text(FILE *file, const char *text)
{
    gyre_text_put_csv(file, text);
    fputc(',', file);
}

gyre_status bench_tidy_row(struct bench_tidy *tidy, const struct bench_tidy_row *row)
{
    if (tidy == NULL)
        return GYRE_SUCCESS;
    FILE *file = tidy->table.file;
    const double algbw = row->time_us > 0 ? (double)row->n_bytes / (row->time_us * 1e3) : 0;
    fprintf(file, "%s,%s,%s,", row->engine, tidy->version, tidy->date);
    put_text(file, row->machine);
    put_text(file, row->device);
    put_text(file, row->fabric);
    fprintf(file, "%u,%u,%s,%s,", row->n_ranks, row->n_hosts, gyre_collectives[row->coll].name,
            row->dtype);
    put_text(file, row->algorithm);
    put_text(file, row->proto);
    if (row->n_channels > 0)
        fprintf(file, "%u", row->n_channels);
    fprintf(file, ",%llu,%.3f,%.6f,", (unsigned long long)row->n_bytes, row->time_us,
            algbw * bench_bus_factor(row->coll, row->n_ranks));
    if (row->ratio > 0)
        fprintf(file, "%.4f,%.4f,%.4f\n", row->ratio, row->ratio_low, row->ratio_high);
    else
        fputs(",,\n", file);
    return bench_table_file_put(&tidy->table);
}

gyre_status bench_tidy_close(struct bench_tidy *tidy)
{
    if (tidy == NULL)
        return GYRE_SUCCESS;
    const gyre_status status = bench_table_file_close(&tidy->table);
    free(tidy);
    return status;
}
