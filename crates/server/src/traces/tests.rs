use super::*;

/// Returns traces of this share that nobody sends.
fn traces(share: f64) -> Arc<Traces> {
    let url = "http://127.0.0.1:9".into();
    let traces = Traces::start(&TraceOptions { url, share }, "bank").expect("a thread");
    traces.stop();
    traces
}

fn begin(traces: &Arc<Traces>, parent: Option<&str>) -> Option<Box<Trace>> {
    let parent = parent.map(|text| Parent::read(text).expect("one"));
    traces.begin("pay", Protocol::Http, parent, Instant::now())
}

const KEPT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const DROPPED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

#[test]
fn the_share_of_the_calls_is_traced_and_those_of_kept_traces() {
    for (share, wanted) in [(0.0, 0..1), (0.01, 90..110), (0.5, 4_990..5_010), (1.0, 10_000..10_001)] {
        let traces = traces(share);
        let begun = (0..10_000).filter(|_| begin(&traces, None).is_some()).count();
        assert!(wanted.contains(&begun), "{begun} of {share}");
        assert!(begin(&traces, Some(KEPT)).is_some());
        assert!(begin(&traces, Some(DROPPED)).is_none());
    }
}

#[test]
fn a_trace_that_nobody_sends_is_counted() {
    let traces = traces(1.0);
    drop(begin(&traces, None));
    assert_eq!(traces.counts().without_room.load(Ordering::Relaxed), 1);
    let mut trace = begin(&traces, Some(KEPT)).expect("it is kept");
    let way = Way { began: 10, ended: 20, durable: Some(30) };
    trace.answered(7, Outcome::Silent, Some(way), (Instant::now(), 40));
    drop(trace);
    assert_eq!(traces.counts().without_room.load(Ordering::Relaxed), 1 + 5);
}

#[test]
fn the_parts_of_a_way_follow_one_another_from_the_beginning_to_the_end() {
    let since = Instant::now();
    let at = |milliseconds: u64| since + Duration::from_millis(milliseconds);
    let called = |way| Called {
        trace: [1; 16],
        span: [2; 8],
        parent: None,
        procedure: "pay".into(),
        by: Protocol::Http,
        since,
        ended: (at(9), SystemTime::UNIX_EPOCH + Duration::from_secs(1)),
        answer: Some(Answer { epoch: 1, outcome: Said::Committed, way, at: at(8) }),
    };
    let ms = |called: &Called| -> Vec<(&str, u64, u64)> {
        let of = |moment: Instant| moment.duration_since(since).as_millis() as u64;
        called.parts().into_iter().map(|(name, from, to)| (name, of(from), of(to))).collect()
    };
    let way = Moments { began: at(2), ended: at(5), durable: Some(at(7)) };
    assert_eq!(ms(&called(Some(way))), [("gate", 0, 2), ("access", 2, 5), ("log", 5, 7), ("reply", 7, 9)]);
    // An epoch may be durable before it has run, and a clock may be read late.
    let way = Moments { began: at(3), ended: at(12), durable: Some(at(1)) };
    assert_eq!(ms(&called(Some(way))), [("gate", 0, 3), ("access", 3, 9), ("log", 9, 9), ("reply", 9, 9)]);
    let again = called(None);
    assert_eq!(ms(&again), [("gate", 0, 8), ("reply", 8, 9)]);
    assert_eq!((again.time(at(9)), again.time(at(0))), (1_000_000_000, 991_000_000));
}
