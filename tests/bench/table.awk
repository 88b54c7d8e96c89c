# Makes a table of figures: `name most` from the first file, `name value` from the others. The median of a name's values counts.
FNR == NR { name[NR] = $1; most[$1] = $2; rows = NR; next }
{ value[FILENAME, $1, ++count[FILENAME, $1]] = $2 }
function median(file, what,    size, place, other, kept, sorted) {
    size = count[file, what]
    for (place = 1; place <= size; place++) {
        kept = value[file, what, place]
        for (other = place - 1; other > 0 && sorted[other] > kept; other--) sorted[other + 1] = sorted[other]
        sorted[other + 1] = kept
    }
    return sorted[int(size / 2) + 1]
}
END {
    print "what                                       bare   no limit      added      limit      added     target"
    for (row = 1; row <= rows; row++) {
        what = name[row]
        if (!(("bare", what) in count)) continue
        bare = median("bare", what); free = median("unlimited", what); bound = median("limited", what)
        added = (free > bound ? free : bound) - bare
        verdict = most[what] == "-" ? "" : added <= most[what] ? "met" : "MISSED"
        printf "%-36s %10.1f %10.1f %10.1f %10.1f %10.1f %10s %s\n", what, bare, free, free - bare, bound, bound - bare, most[what], verdict
    }
}
