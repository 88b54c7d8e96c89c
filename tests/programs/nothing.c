// A library of any name that does nothing.
void nothing_at_all(void) {}
