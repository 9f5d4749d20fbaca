//! The answers that checkpoints of versions before 11 have, as blocks, which are read and not written any more.
//!
//! A block stays while it has answers of sources that keep none now, as a later version of the program may keep them. The next checkpoint
//! has the others as runs, so the block says which these are: read again, they would stand before calls that have the same keys since.
//!
//! ```text
//! pages   = n, n × (source's name, calls: n, n × call, batch of commits, batch of aborts)
//! call    = epoch, key, arguments:8, called:8, outcome
//! outcome = 0 silent, 1 committed, 2 aborted, or 3 taken by no transaction, reason
//! batch   = 0, or 1; schema, or nothing where none commits with a record; batch, if it is there
//! ```

use super::{Form, Page, Remembering};
use crate::encoding::{Malformed, Reader, read_batch, read_key};
use arrow_array::RecordBatch;
use std::sync::Arc;
use tidemill_durability::{AnswerBlock, StateDirectory, StateError};
use tidemill_model::Schema;
use tidemill_model::arrow::arrow_schema;
use tidemill_stages::finish::answers::{Answers, Outcome};

/// Reads the answers of these sources in a block; and the block as the next checkpoint has it, if it has answers of others.
pub(crate) fn read_block(
    directory: &StateDirectory,
    remembering: &[Remembering],
    answers: &AnswerBlock,
) -> Result<(Vec<Page>, Option<AnswerBlock>), StateError> {
    let text = directory.blocks().read(&answers.block, "answers of calls")?;
    let mut taken = answers.taken.clone();
    let (pages, is_over) = read_pages(&mut Reader(&text), remembering, &mut taken).map_err(|Malformed(reason)| {
        StateError::Refused(format!("a checkpoint's answers of calls do not read: {reason}"))
    })?;
    Ok((pages, (!is_over).then(|| AnswerBlock { taken, ..answers.clone() })))
}

/// Reads the pages of these sources, but for those that were taken before; returns whether the block has no others. Adds the sources
/// of the pages to `taken`.
fn read_pages(
    reader: &mut Reader<'_>,
    remembering: &[Remembering],
    taken: &mut Vec<String>,
) -> Result<(Vec<Page>, bool), Malformed> {
    let (mut pages, mut is_over, taken_before) = (Vec::new(), true, taken.clone());
    for _ in 0..reader.number()? {
        let name = reader.text()?;
        let (mut keys, mut epochs, mut outcomes) = (Vec::new(), Vec::new(), Vec::new());
        let (mut commits, mut aborts, mut untaken) = (0, 0, Vec::new());
        for _ in 0..reader.number()? {
            let key = read_key(reader)?;
            epochs.push(key.event);
            keys.push(key);
            let next = |count: &mut u32| {
                *count += 1;
                *count - 1
            };
            outcomes.push(match reader.byte()? {
                0 => Outcome::Silent,
                1 => Outcome::Committed(next(&mut commits)),
                2 => Outcome::Aborted(next(&mut aborts)),
                3 => Outcome::Untaken(place_of(&mut untaken, reader.text()?)),
                _ => return Err(Malformed("a call has an unknown outcome".into())),
            });
        }
        let (returns, committed) = read_batches(reader)?;
        let (shows, aborted) = read_batches(reader)?;
        let rows = |batch: &Option<RecordBatch>| batch.as_ref().map_or(0, RecordBatch::num_rows);
        if (rows(&committed), rows(&aborted)) != (commits as usize, aborts as usize) {
            return Err(Malformed("answers are missing".into()));
        }
        if taken_before.contains(&name) {
            continue;
        }
        let form = Form::new(returns, shows);
        let of = remembering.iter().find(|of| of.name == name);
        let Some((of, input)) = of.and_then(|of| Some((of, of.input?))) else {
            // The source keeps no answers of calls now; a later version of the program may.
            is_over = false;
            continue;
        };
        if !taken.contains(&name) {
            taken.push(name);
        }
        let (is_of_now, form) = (form.is_as(&of.form), Arc::new(form));
        let answers = Arc::new(Answers { input, outcomes, committed, aborted, untaken });
        pages.push(Page { source: of.source, keys, epochs, answers, form, is_of_now });
    }
    Ok((pages, is_over))
}

/// Returns the place of a reason, which is added where it is new.
fn place_of(reasons: &mut Vec<String>, reason: String) -> u32 {
    let known = reasons.iter().position(|other| *other == reason);
    known.unwrap_or_else(|| {
        reasons.push(reason);
        reasons.len() - 1
    }) as u32
}

fn read_batches(reader: &mut Reader<'_>) -> Result<(Option<Schema>, Option<RecordBatch>), Malformed> {
    let text = reader.text()?;
    let schema: Option<Schema> = match text.is_empty() {
        true => None,
        false => Some(serde_json::from_str(&text).map_err(|error| Malformed(error.to_string()))?),
    };
    let batch = match (reader.byte()?, &schema) {
        (0, _) => None,
        (_, Some(schema)) => Some(read_batch(reader, &arrow_schema(schema))?),
        (_, None) => return Err(Malformed("answers have no form".into())),
    };
    Ok((schema, batch))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoding::{BatchCodec, bytes, number, write_key};
    use tidemill_durability::CallKey;
    use tidemill_model::arrow::{batch_of, rows};
    use tidemill_model::{ColumnType, Field, Type, Value};

    fn schema(field: &str) -> Schema {
        Schema { fields: vec![Field::scalar(field, ColumnType::required(Type::Int))] }
    }

    fn source(name: &str, returns: &str) -> Remembering {
        let form = Arc::new(Form::new(Some(schema(returns)), Some(schema("reason"))));
        Remembering { source: 3, input: Some(0.into()), time: 100, keys_max: 10, name: name.into(), form }
    }

    /// Answers as version 10 of the format has them: a commit and a call that reached no transaction.
    fn written() -> Vec<u8> {
        let mut text = Vec::new();
        number(&mut text, 1);
        write_page("deposits", &mut text);
        text
    }

    fn write_page(source: &str, text: &mut Vec<u8>) {
        bytes(text, source.as_bytes());
        number(text, 2);
        for (epoch, outcome) in [(7, 1), (9, 3)] {
            let key = CallKey { event: 0, key: format!("ada\nkey {epoch}"), arguments: 5, called: epoch as i64 };
            write_key(epoch, &key, text);
            text.push(outcome);
        }
        bytes(text, b"left out by a filter");
        bytes(text, &serde_json::to_vec(&schema("balance")).expect("plain data"));
        text.push(1);
        BatchCodec::default().write(&batch_of(&schema("balance"), &[vec![Value::Int(12)]]), text);
        bytes(text, &serde_json::to_vec(&schema("reason")).expect("plain data"));
        text.push(0);
    }

    /// Reads answers of sources; returns the number of pages, and whether the block has no others.
    fn read(text: &[u8], names: &[&str], taken: &mut Vec<String>) -> (usize, bool) {
        let remembering: Vec<Remembering> = names.iter().map(|name| source(name, "balance")).collect();
        let (pages, is_over) = read_pages(&mut Reader(text), &remembering, taken).expect("it reads");
        (pages.len(), is_over)
    }

    #[test]
    fn answers_that_runs_have_since_are_not_read_again() {
        let mut text = Vec::new();
        number(&mut text, 3);
        ["deposits", "payments", "deposits"].iter().for_each(|name| write_page(name, &mut text));
        let mut taken = Vec::new();
        assert_eq!(read(&text, &["deposits"], &mut taken), (2, false));
        assert_eq!(taken, ["deposits"]);
        assert_eq!(
            read(&text, &["deposits"], &mut taken),
            (0, false),
            "runs have them, and later calls with these keys"
        );
        assert_eq!(read(&text, &["deposits", "payments"], &mut taken), (1, true));
        assert_eq!(read(&text, &[], &mut taken), (0, true));
    }

    #[test]
    fn answers_of_version_10_are_read() {
        let (pages, is_over) =
            read_pages(&mut Reader(&written()), &[source("deposits", "balance")], &mut Vec::new()).expect("it reads");
        let [page] = &pages[..] else { panic!("{pages:?}") };
        assert!(is_over && page.source == 3 && page.is_of_now(0) && page.is_of_now(1));
        assert_eq!((&page.keys[0].key[..], page.keys[1].called, &page.epochs[..]), ("ada\nkey 7", 9, &[7, 9][..]));
        assert_eq!(page.answers.outcomes, [Outcome::Committed(0), Outcome::Untaken(0)]);
        assert_eq!(page.answers.untaken, ["left out by a filter"]);
        let committed = page.answers.committed.as_ref().expect("one commits");
        assert_eq!(rows(committed, &schema("balance")), [[Value::Int(12)]]);
    }

    #[test]
    fn answers_in_another_form_and_of_another_source_are_told_apart() {
        let (text, mut taken) = (written(), Vec::new());
        let (pages, is_over) =
            read_pages(&mut Reader(&text), &[source("deposits", "amount")], &mut taken).expect("it reads");
        assert!(is_over && !pages[0].is_of_now(0) && pages[0].is_of_now(1));
        assert_eq!(read(&text, &["payments"], &mut Vec::new()), (0, false));
    }
}
