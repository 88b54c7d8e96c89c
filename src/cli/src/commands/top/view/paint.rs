//! Colours and weights of texts.

use ratatui::style::{Color, Modifier, Style};

/// Colours, or no colours. A colour never carries a fact alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Paint {
    has_colours: bool,
}

impl Paint {
    pub(super) fn new(has_colours: bool) -> Self {
        Self { has_colours }
    }

    fn coloured(self, colour: Color) -> Style {
        if self.has_colours { Style::new().fg(colour) } else { Style::new() }
    }

    pub(super) fn title(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    pub(super) fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Returns the style of names and hints.
    pub(super) fn faint(self) -> Style {
        self.coloured(Color::Cyan)
    }

    pub(super) fn bad(self) -> Style {
        self.coloured(Color::Red)
    }

    pub(super) fn good(self) -> Style {
        self.coloured(Color::Green)
    }

    /// Returns the colour of a fill level.
    pub(super) fn fill(self, part: u64, whole: u64) -> Style {
        match u128::from(part) * 100 / u128::from(whole.max(1)) {
            0..75 => self.coloured(Color::Green),
            75..90 => self.coloured(Color::Yellow),
            _ => self.coloured(Color::Red),
        }
    }

    /// Returns the colour of the bar and the history of time. It does not depend on the level, because it is normal
    /// that a slice uses its whole share.
    pub(super) fn time(self) -> Style {
        self.coloured(Color::Blue)
    }
}
