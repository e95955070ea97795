/* SPDX-License-Identifier: Apache-2.0
 *
 * Only for builds with json-c.
 */
#ifndef GYRE_BENCH_JSON_ADD_H
#define GYRE_BENCH_JSON_ADD_H

#include "core/foundation/base/status.h"
#include "core/foundation/base/text.h"

#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* json-c writes a string's bytes unchecked. */
static inline struct json_object *json_text(const char *text)
{
    const size_t n_bytes = GYRE_TEXT_UTF8_BYTES(strlen(text));
    char *copy = malloc(n_bytes);
    if (copy == NULL)
        return NULL;
    struct json_object *string =
        json_object_new_string_len(copy, (int)gyre_text_to_utf8(text, copy, n_bytes));
    free(copy);
    return string;
}

static inline void add_text(struct json_object *object, const char *key, const char *text)
{
    json_object_object_add(object, key, json_text(text));
}

static inline void add_number(struct json_object *object, const char *key, double number)
{
    json_object_object_add(object, key, json_object_new_double(number));
}

static inline void add_int(struct json_object *object, const char *key, int64_t number)
{
    json_object_object_add(object, key, json_object_new_int64(number));
}

static inline void add_bool(struct json_object *object, const char *key, bool value)
{
    json_object_object_add(object, key, json_object_new_boolean(value));
}

static inline struct json_object *add_object(struct json_object *object, const char *key)
{
    struct json_object *child = json_object_new_object();
    json_object_object_add(object, key, child);
    return child;
}

static inline struct json_object *add_array(struct json_object *object, const char *key)
{
    struct json_object *child = json_object_new_array();
    json_object_object_add(object, key, child);
    return child;
}

static inline void add_time(struct json_object *object, const char *key)
{
    char text[32];
    const time_t now = time(NULL);
    struct tm parts;
    strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &parts));
    add_text(object, key, text);
}

/** Errors: as gyre_file_replace(). */
gyre_status bench_json_write(struct json_object *root, const char *path);

/** Released by json_object_put(). Errors name the path: as gyre_file_read(), INVALID_ARGUMENT (not
 * JSON). */
gyre_status bench_json_read(const char *path, struct json_object **root_out);

#endif
