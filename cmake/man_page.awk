# Turns the --help of a program into a man page. Lines before the first heading are paragraphs;
# "usage:" and "examples:" are kept as they stand; a line with two columns or more (an option and
# its text, a command and its text) becomes an entry, and deeper lines below it continue its text.
# Intervals such as {2,6} are left out of the patterns: Debian 12's mawk does not know them.
#   awk -v name=gyre-topo -v command="gyre topo" -v version=0.1.0 -v summary=... -f man_page.awk
function escape(text) {
    gsub(/\\/, "\\e", text)
    gsub(/-/, "\\-", text)
    if (text ~ /^[.']/)
        text = "\\&" text
    return text
}

# Closes what the last line left open.
function finish() {
    if (is_verbatim)
        print ".fi"
    is_verbatim = 0
    in_entry = 0
}

function begin_section(title) {
    finish()
    print ".SH " toupper(title)
}

function verbatim(text) {
    if (!is_verbatim)
        print ".nf"
    is_verbatim = 1
    print escape(text)
}

BEGIN {
    # The date is left out, so that a page depends on nothing but the program.
    printf ".TH %s 1 \"\" \"gyre %s\" \"gyre\"\n", toupper(name), version
    print ".SH NAME"
    print escape(name) " \\- " escape(summary)
    print ".SH DESCRIPTION"
    print ".B " escape(command)
    print "is a command of gyre. This page is its"
    print ".BR \\-\\-help ."
}

/^$/ {
    finish()
    next
}

/^usage: / {
    begin_section("synopsis")
    sub(/^usage: /, "")
    in_usage = 1
    in_examples = 0
    verbatim($0)
    next
}

/^[a-z ]+:$/ {
    in_usage = 0
    in_examples = $0 == "examples:"
    begin_section(substr($0, 1, length($0) - 1))
    next
}

in_usage && !has_options && /^       / {
    verbatim(substr($0, 8))
    next
}

# An entry: columns that two spaces or more separate. The last one is its text.
/^   ? ? ? ?[^ ].*[^ ]  +[^ ]/ && !in_examples {
    if (in_usage && !has_options++)
        begin_section("options")
    finish()
    line = $0
    sub(/^ +/, "", line)
    n_columns = split(line, columns, /  +/)
    print ".TP"
    head = columns[1]
    for (i = 2; i < n_columns; i++)
        head = head " " columns[i]
    print ".B " escape(head)
    print escape(columns[n_columns])
    in_entry = 1
    next
}

in_entry && /^          / {
    sub(/^ +/, "")
    print escape($0)
    next
}

{
    if (in_usage && !has_options && !is_plain++)
        begin_section("what it does")
    else
        in_entry = 0
    sub(/^ +/, "")
    verbatim($0)
}
