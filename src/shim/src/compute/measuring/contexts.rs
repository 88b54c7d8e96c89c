//! Contexts that the program has had.

/// Which contexts a program has had: to ask for the current one takes a tenth of what a launch may cost.
#[derive(Debug, Default)]
pub(crate) enum Contexts {
    #[default]
    None,
    One(usize),
    Several,
}
