//! Exit codes: contract, in one place.

/// How a command ended. When several apply, the first of 130, 2, 3, 5, 1, 4, 0 wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Every gate held.
    Held,
    /// A gate failed.
    GateFailed,
    /// Wrong usage or scenario.
    Usage,
    /// This machine can't run it.
    Cannot,
    /// Void or too few trials.
    Inconclusive,
    /// The harness itself failed.
    Harness,
    /// Interrupted, and cleaned up.
    Interrupted,
}

impl Exit {
    /// The code for the shell.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Held => 0,
            Self::GateFailed => 1,
            Self::Usage => 2,
            Self::Cannot => 3,
            Self::Inconclusive => 4,
            Self::Harness => 5,
            Self::Interrupted => 130,
        }
    }

    fn rank(self) -> u8 {
        match self {
            Self::Interrupted => 0,
            Self::Usage => 1,
            Self::Cannot => 2,
            Self::Harness => 3,
            Self::GateFailed => 4,
            Self::Inconclusive => 5,
            Self::Held => 6,
        }
    }

    /// The stronger of two.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        if other.rank() < self.rank() { other } else { self }
    }
}

/// A failure with the code that it ends in; its text is one line with the mend.
#[derive(Debug)]
pub struct Failure {
    /// How the command ends.
    pub exit: Exit,
    /// What, where and the mend.
    pub text: String,
}

impl Failure {
    /// A failure that ends in `exit`.
    pub fn new(exit: Exit, text: impl Into<String>) -> Self {
        Self { exit, text: text.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_precedence_is_the_contract() {
        let order = [
            Exit::Interrupted,
            Exit::Usage,
            Exit::Cannot,
            Exit::Harness,
            Exit::GateFailed,
            Exit::Inconclusive,
            Exit::Held,
        ];
        let codes: Vec<u8> = order.iter().map(|e| e.code()).collect();
        assert_eq!(codes, [130, 2, 3, 5, 1, 4, 0]);
        for (i, a) in order.iter().enumerate() {
            for b in &order[i..] {
                assert_eq!(a.and(*b), *a);
                assert_eq!(b.and(*a), *a);
            }
        }
    }
}
