//! Symbols as indices, and the facts of their rows: name, treatment, family.

use crate::types::c_uint;

/// The action of the library around a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Treatment {
    /// Reserves quota before the driver runs, and refunds it if the driver fails.
    Charge,
    /// Refunds the charge after the driver has succeeded.
    Release,
    /// Submits work to the GPU; its start may be delayed.
    Gate,
    /// The library answers the call itself, or changes its arguments or the driver's answer.
    Answer,
    /// The call is forwarded unchanged, and the library records it or updates its state.
    Watch,
    /// The call is forwarded unchanged.
    Pass,
}

/// The library to which a symbol belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    /// `libcuda.so.1`.
    Cuda,
    /// `libnvidia-ml.so.1`.
    Nvml,
}

/// A row of the table, for documentation and audits.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The exported name.
    pub name: &'static str,
    /// The action of the library around a call.
    pub treatment: Treatment,
    /// The group of rows to which the row belongs.
    pub family: &'static str,
    /// The reason for the family's treatment.
    pub reason: &'static str,
    /// First version at which `cuGetProcAddress` returns the symbol.
    pub since: Option<c_uint>,
    /// The hook that handles the call.
    pub hook: Option<&'static str>,
    /// Parameters, as the row has them.
    pub parameters: &'static str,
    /// Number of parameters.
    pub arity: usize,
}

macro_rules! optional {
    () => {
        None
    };
    ($value:expr) => {
        Some($value)
    };
}

macro_rules! count {
    ($($one:ident)*) => { <[&str]>::len(&[$(stringify!($one)),*]) };
}

macro_rules! table {
    ($( $family:ident: $reason:literal { $(
        $treatment:ident $name:ident $(@ $since:literal)? ( $($arg:ident: $ty:ty),* )
            $(-> ($ret:ty))? $(by $module:ident :: $hook:ident)?;
    )* } )*) => {
        /// A function of the driver, as an index into tables with an entry for each function.
        #[allow(non_camel_case_types, missing_docs, reason = "the names are the driver's")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        pub enum Symbol { $( $( $name, )* )* }

        /// Every symbol, in table order.
        pub const ALL: &[Symbol] = &[ $( $( Symbol::$name, )* )* ];

        /// All names in sequence; [`OFFSETS`] separates them. It has no pointers, so the loader has nothing to
        /// relocate.
        const NAMES: &str = concat!( $( $( stringify!($name), )* )* );

        const LENGTHS: [u8; COUNT] = [ $( $( name_length(stringify!($name)), )* )* ];

        const TREATMENTS: [Treatment; COUNT] = [ $( $( treatment!($treatment), )* )* ];

        const HOOKED: [bool; COUNT] = [ $( $( false $(|| !stringify!($module).is_empty())?, )* )* ];

        /// Returns the row of a symbol. For documentation and tests; the preload library does not use it.
        #[must_use]
        pub fn row(symbol: Symbol) -> Row {
            match symbol { $( $( Symbol::$name => Row {
                name: stringify!($name),
                treatment: treatment!($treatment),
                family: stringify!($family),
                reason: $reason,
                since: optional!($($since)?),
                hook: optional!($(concat!(stringify!($module), "::", stringify!($hook)))?),
                parameters: stringify!($($arg: $ty),*),
                arity: count!($($arg)*),
            }, )* )* }
        }
    };
}

macro_rules! treatment {
    (charge) => {
        Treatment::Charge
    };
    (release) => {
        Treatment::Release
    };
    (gate) => {
        Treatment::Gate
    };
    (answer) => {
        Treatment::Answer
    };
    (watch) => {
        Treatment::Watch
    };
    (pass) => {
        Treatment::Pass
    };
}

crate::for_each_symbol! { [table] }

/// Number of symbols.
pub const COUNT: usize = ALL.len();

#[allow(clippy::cast_possible_truncation, reason = "no name is longer than 255 bytes: asserted")]
const fn name_length(name: &str) -> u8 {
    assert!(name.len() < 256);
    name.len() as u8
}

#[allow(clippy::cast_possible_truncation, clippy::indexing_slicing, reason = "evaluated at compile time")]
const OFFSETS: [u16; COUNT + 1] = {
    let mut offsets = [0; COUNT + 1];
    let mut at = 0;
    while at < COUNT {
        offsets[at + 1] = offsets[at] + LENGTHS[at] as u16;
        at += 1;
    }
    assert!(offsets[COUNT] as usize == NAMES.len());
    offsets
};

/// Slots of the name index: a power of two, at least twice the number of names.
const INDEX_SIZE: usize = 4096;
const _: () = assert!(COUNT * 2 < INDEX_SIZE);

/// A hash table with open addressing by [`place_of`]. An entry is a symbol number plus one, or 0 if it is empty.
#[allow(clippy::cast_possible_truncation, clippy::indexing_slicing, reason = "evaluated at compile time")]
static INDEX: [u16; INDEX_SIZE] = {
    let mut index = [0; INDEX_SIZE];
    let mut symbol = 0;
    while symbol < COUNT {
        let (_before, rest) = NAMES.as_bytes().split_at(OFFSETS[symbol] as usize);
        let (name, _after) = rest.split_at(LENGTHS[symbol] as usize);
        let mut place = place_of(name);
        while index[place] != 0 {
            place = (place + 1) % INDEX_SIZE;
        }
        index[place] = symbol as u16 + 1;
        symbol += 1;
    }
    index
};

/// Returns the first slot to look at for a name. The hash takes eight bytes at a time. The last eight bytes are always one
/// word, even if some of them were taken before. A loop over single bytes would take longer than the rest of a look-up.
#[allow(clippy::cast_possible_truncation, reason = "the top bits, fewer than a place has")]
const fn place_of(name: &[u8]) -> usize {
    let mut value = name.len() as u64;
    let mut rest = name;
    while let Some((word, after)) = rest.split_first_chunk::<8>() {
        value = mix(value, u64::from_le_bytes(*word));
        rest = after;
    }
    if let Some(word) = name.last_chunk::<8>() {
        value = mix(value, u64::from_le_bytes(*word));
    } else {
        while let Some((byte, after)) = rest.split_first() {
            value = mix(value, *byte as u64);
            rest = after;
        }
    }
    (value >> (u64::BITS - INDEX_SIZE.ilog2())) as usize
}

const fn mix(value: u64, word: u64) -> u64 {
    // The multiplier of Knuth's multiplicative hashing. The rotation lets all bits of a word reach the top.
    (value.rotate_left(25) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Symbol {
    /// Returns the symbol with exactly this name.
    #[must_use]
    pub fn find(name: &[u8]) -> Option<Self> {
        let mut place = place_of(name);
        loop {
            let number = usize::from(*INDEX.get(place)?).checked_sub(1)?;
            let symbol = *ALL.get(number)?;
            if symbol.bytes() == name {
                return Some(symbol);
            }
            place = (place + 1) % INDEX_SIZE;
        }
    }

    /// Returns the exported name.
    #[must_use]
    pub fn name(self) -> &'static str {
        str::from_utf8(self.bytes()).unwrap_or("")
    }

    /// Returns the exported name as bytes.
    #[inline]
    fn bytes(self) -> &'static [u8] {
        let bounds = OFFSETS.get(self.index()).zip(OFFSETS.get(self.index() + 1));
        bounds
            .and_then(|(from, to)| NAMES.as_bytes().get(usize::from(*from)..usize::from(*to)))
            .unwrap_or_default()
    }

    /// Returns the index in tables with an entry for each symbol.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns the library to which the symbol belongs.
    #[must_use]
    #[allow(clippy::indexing_slicing, reason = "every symbol has a place in the table")]
    pub const fn api(self) -> Api {
        // Names begin with `cu` or with `nvml`.
        if NAMES.as_bytes()[OFFSETS[self.index()] as usize] == b'n' { Api::Nvml } else { Api::Cuda }
    }

    /// Returns the action of the library around a call.
    #[must_use]
    pub fn treatment(self) -> Treatment {
        TREATMENTS.get(self.index()).copied().unwrap_or(Treatment::Pass)
    }

    /// Returns true if a hook handles the symbol. Otherwise the symbol's entry jumps to the driver.
    #[must_use]
    pub fn is_hooked(self) -> bool {
        HOOKED.get(self.index()).copied().unwrap_or(false)
    }

    /// Returns the symbol's row.
    #[must_use]
    pub fn row(self) -> Row {
        row(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_finds_its_own_symbol() {
        for symbol in ALL {
            assert_eq!(Symbol::find(symbol.name().as_bytes()), Some(*symbol), "{}", symbol.name());
            assert_eq!(symbol.row().name, symbol.name());
        }
    }

    #[test]
    fn names_that_merely_resemble_one_are_not_found() {
        for name in ["", "cu", "cuMemAlloc_v", "cuMemAlloc_v2 ", "curl_easy_init", "cudaMalloc", "nvml"] {
            assert_eq!(Symbol::find(name.as_bytes()), None, "{name}");
        }
    }

    #[test]
    fn no_debugger_name_has_a_row() {
        assert!(ALL.iter().all(|symbol| !symbol.name().starts_with("cudbg")));
    }
}
