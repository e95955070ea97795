/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the page: page.html with the style, the scripts and the drawing's data in place of its
 * marks. The build embeds these files (cmake/embed.cmake).
 */
#include "bench/draw/page.h"

#include "bench/draw/embedded.h"
#include "core/foundation/base/status.h"
#include "core/foundation/base/text.h"

#include <string.h>

static void write_embedded(const struct bench_draw_embedded *embedded, FILE *file)
{
    fwrite(embedded->bytes, 1, embedded->n_bytes, file);
}

/* Write the text that takes the place of a mark of page.html. */
static gyre_status write_part(const char *mark, size_t n_mark, const struct bench_drawing *drawing,
                              const char *title, FILE *file)
{
    if (strncmp(mark, "title", n_mark) == 0)
        gyre_text_put_markup(file, title);
    else if (strncmp(mark, "style", n_mark) == 0)
        write_embedded(&bench_draw_page_css, file);
    else if (strncmp(mark, "data", n_mark) == 0)
        return bench_draw_json(drawing, title, file);
    else if (strncmp(mark, "scripts", n_mark) == 0)
        for (int i = 0; bench_draw_scripts[i] != NULL; i++)
            write_embedded(bench_draw_scripts[i], file);
    return GYRE_SUCCESS;
}

gyre_status bench_draw_page(const struct bench_drawing *drawing, const char *title, FILE *file)
{
    static const char open_mark[] = "<!--{", close_mark[] = "}-->";
    const char *at = (const char *)bench_draw_page_html.bytes; /* terminated */
    for (;;) {
        const char *open = strstr(at, open_mark);
        const char *close = open == NULL ? NULL : strstr(open, close_mark);
        if (close == NULL)
            break;
        fwrite(at, 1, (size_t)(open - at), file);
        const char *mark = open + strlen(open_mark);
        GYRE_TRY(write_part(mark, (size_t)(close - mark), drawing, title, file));
        at = close + strlen(close_mark);
    }
    fputs(at, file);
    return GYRE_SUCCESS;
}
