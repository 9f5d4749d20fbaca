//! The order of positions, and their text.

use super::*;

fn wake(time: i64, table: u32, key: Vec<KeyPart>) -> SerialPosition {
    SerialPosition::new(time, Place::Wake { table, key })
}

/// Positions in their order, each kind beside its neighbours.
fn ascending() -> Vec<SerialPosition> {
    let text = |text: &str| KeyPart::Text(text.into());
    let tick = |time, every| SerialPosition::new(time, Place::Tick { every });
    let result = |time, operator, ordinal| SerialPosition::new(time, Place::Result { operator, ordinal });
    vec![
        SerialPosition::begin(i64::MIN).then_sent(0),
        SerialPosition::record(-7, 9, 9, u64::MAX),
        SerialPosition::begin(60),
        SerialPosition::begin(60).then_sent(1),
        tick(60, 0),
        tick(60, 0).then_sent(2),
        tick(60, 1),
        wake(60, 0, vec![]),
        wake(60, 1, vec![KeyPart::Word(-1)]),
        wake(60, 1, vec![KeyPart::Word(2)]),
        wake(60, 2, vec![text(""), KeyPart::Word(0)]),
        wake(60, 2, vec![text("a, \"b\\\")+1"), KeyPart::Word(5)]),
        wake(60, 2, vec![text("ö"), KeyPart::Word(5)]).then_sent(3),
        wake(60, 3, vec![KeyPart::Bytes(vec![])]),
        wake(60, 3, vec![KeyPart::Bytes(vec![0, 255])]),
        SerialPosition::record(60, 0, 1, 5),
        SerialPosition::record(60, 0, 1, 5).then_sent(4),
        SerialPosition::record(60, 0, 1, 5).then_sent(5),
        SerialPosition::record(60, 0, 1, 6),
        SerialPosition::record(60, 0, 2, 0),
        SerialPosition::record(60, 1, 0, 0),
        result(60, 0, 0),
        result(60, 0, 1),
        result(60, 1, 0),
        SerialPosition::begin(61).then_sent(6),
        result(i64::MAX, 0, 0),
    ]
}

#[test]
fn positions_are_ordered_by_time_phase_place_and_what_is_sent() {
    let positions = ascending();
    for (l, left) in positions.iter().enumerate() {
        for (r, right) in positions.iter().enumerate() {
            assert_eq!(left.cmp(right), l.cmp(&r), "{left} and {right}");
        }
    }
    assert!(
        positions.windows(2).all(|pair| pair[0].time < pair[1].time || pair[0].place.phase() <= pair[1].place.phase())
    );
}

#[test]
fn positions_of_events_keep_todays_order() {
    let position = |time, source, offset| Position { time, source, offset };
    let all = [position(1, 0, 3), position(1, 1, 0), position(1, 1, 2), position(2, 0, 4)];
    assert!(all.windows(2).all(|pair| pair[0] < pair[1]));
    assert!(all.windows(2).all(|pair| SerialPosition::from(pair[0]) < SerialPosition::from(pair[1])));
}

#[test]
fn a_position_is_read_back_from_its_text() {
    for position in ascending() {
        assert_eq!(position.to_string().parse(), Ok(position));
    }
    assert_eq!(SerialPosition::record(60, 0, 1, 17).then_sent(7).to_string(), "60/record/0.1.17+7");
}

#[test]
fn only_the_one_text_of_a_position_is_read() {
    let wrong = [
        "",
        "60",
        "60/",
        "60/record/0.1",
        "60/record/0.1.2.3",
        "60/record/00.1.2",
        "+60/tick/0",
        "60/tick/0+",
        "60/tick/-1",
        "60/begin ",
        "60/begin+-1",
        "60/wake/0",
        "60/wake/0(",
        "60/wake/0(1,)",
        "60/wake/0(\"a)",
        "60/wake/0(\"\\a\")",
        "60/wake/0(xF0)",
        "60/wake/0(x0)",
        "60/result/4294967296.0",
        "9223372036854775808/begin",
        "ö/begin",
        "60/wake/0(ö)",
    ];
    for text in wrong {
        let error = text.parse::<SerialPosition>().expect_err(text);
        assert!(error.to_string().starts_with(&format!("{text:?} is not a position")), "{error}");
    }
}
