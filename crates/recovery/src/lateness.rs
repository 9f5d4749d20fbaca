//! A source's lateness may change from run to run. Its mark stays what it was: it never falls, also where the lateness
//! grows, and it rises by inputs alone, also where the lateness shrinks (`docs/formalism.md`, "Marks and lateness").
//!
//! A checkpoint has the greatest time and the greatest punctuation of a source, and its mark follows from them and the
//! lateness. So at a change the mark becomes a punctuation, and the greatest time, which serves the mark only, becomes
//! the one that this mark follows from.

use tidemill_durability::{Checkpoint, Identity};
use tidemill_plan::{Origin, Program};

/// The facts from which the mark of a source follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkOf {
    /// The greatest time that it has delivered.
    pub greatest: Option<i64>,
    /// The greatest punctuation.
    pub punctuated: Option<i64>,
}

impl MarkOf {
    fn mark(self, lateness: i64) -> Option<i64> {
        self.greatest.map(|greatest| greatest.saturating_sub(lateness)).max(self.punctuated)
    }

    /// Returns facts from which the same mark follows under another lateness.
    pub fn under(self, was: i64, is: i64) -> MarkOf {
        let Some(mark) = self.mark(was).filter(|_| was != is) else { return self };
        let greatest = self.greatest.map(|greatest| greatest.min(mark.saturating_add(is)));
        let kept = MarkOf { greatest, punctuated: Some(mark) };
        assert_eq!(kept.mark(is), Some(mark), "the mark stays");
        kept
    }
}

/// Keeps the marks of a checkpoint's sources as they are in the program that it is of, for a program with the same
/// sources.
pub fn keep_marks(checkpoint: &mut Checkpoint, of: &Identity, program: &Program) {
    let lateness = program.streams.iter().filter_map(|stream| match stream.origin {
        Origin::Source { lateness, .. } => Some(lateness),
        _ => None,
    });
    let sources: Vec<_> = of.sources.iter().zip(lateness).collect();
    for (number, source) in checkpoint.sources.iter_mut().enumerate() {
        let number = source.split.as_ref().map_or(number, |split| split.source);
        let Some(&(was, is)) = sources.get(number) else { continue };
        // Without event time it is a counter that the checkpoint has.
        if was.event_time.is_some() {
            let mark = MarkOf { greatest: source.greatest, punctuated: source.punctuated }.under(was.lateness, is);
            (source.greatest, source.punctuated) = (mark.greatest, mark.punctuated);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_stays_under_any_lateness() {
        let times = [i64::MIN, i64::MIN + 1, -7, 0, 3, 20, i64::MAX - 1, i64::MAX];
        let options = || times.into_iter().map(Some).chain([None]);
        for (greatest, punctuated) in options().flat_map(|greatest| options().map(move |other| (greatest, other))) {
            for (was, is) in times.iter().flat_map(|was| times.map(|is| (*was, is))).filter(|(a, b)| *a >= 0 && *b >= 0)
            {
                let before = MarkOf { greatest, punctuated };
                let after = before.under(was, is);
                assert_eq!(after.mark(is), before.mark(was), "{before:?} from {was} to {is}");
                assert!(after.greatest <= greatest && after.punctuated >= punctuated);
            }
        }
    }
}
