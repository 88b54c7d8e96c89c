# Makes a table of figures: `name most` from the first file, `name value` from the others, of which the least counts.
FNR == NR { name[NR] = $1; most[$1] = $2; rows = NR; next }
!((FILENAME, $1) in least) || $2 < least[FILENAME, $1] { least[FILENAME, $1] = $2 }
END {
    print "what                                       bare   no limit      added      limit      added     target"
    for (row = 1; row <= rows; row++) {
        what = name[row]
        if (!(("bare", what) in least)) continue
        bare = least["bare", what]; free = least["unlimited", what]; bound = least["limited", what]
        added = (free > bound ? free : bound) - bare
        verdict = most[what] == "-" ? "" : added <= most[what] ? "met" : "MISSED"
        printf "%-36s %10.1f %10.1f %10.1f %10.1f %10.1f %10s %s\n", what, bare, free, free - bare, bound, bound - bare, most[what], verdict
    }
}
