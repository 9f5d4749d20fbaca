//! The metrics of a run and of a server, and the text that Prometheus reads.
//!
//! Counts are read when somebody asks: those of the run from [`Watched`] (`of_run`), those of the server from what its
//! threads count anyway (`of_server`), and those of the process from the system (`of_process`). `endpoint` serves them for a
//! run that has no server.

mod endpoint;
mod of_process;
mod of_run;
mod of_server;

use crate::shared::Shared;
pub use endpoint::{MetricsError, MetricsServer};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::fmt;
use std::sync::Arc;
use tidemill_runtime::{BOUNDS, SpreadAt, Watched};

/// The metrics of a server. It can be asked as long as there is the session.
#[derive(Clone)]
pub struct Metrics(pub(crate) Arc<Shared>);

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A count that only grows.
    Counter,
    /// A quantity that may rise and fall.
    Gauge,
    /// Durations by their lengths.
    Histogram,
}

impl MetricKind {
    /// Returns its word, as Prometheus has it.
    pub fn word(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        }
    }
}

/// Counts of one name.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Its name, as Prometheus has it: with the unit, and with `total` if it is a counter.
    pub name: &'static str,
    /// Its kind.
    pub kind: MetricKind,
    /// The description of the quantity that is measured, as a sentence.
    pub help: &'static str,
    /// The counts by the values of their labels.
    pub counts: Vec<(Labels, Count)>,
}

/// The labels of a count, with their values.
pub type Labels = Vec<(&'static str, String)>;

/// A count.
#[derive(Clone, Debug, PartialEq)]
pub enum Count {
    /// A number of things.
    Whole(u64),
    /// A quantity.
    Part(f64),
    /// A distribution of durations.
    Spread(Box<SpreadAt>),
}

/// Numbers of one name without buckets, for those who know no histograms of others.
#[derive(Clone, Debug, PartialEq)]
pub struct PlainMetric {
    /// Its name; that of a histogram with `_count` or `_sum`.
    pub name: String,
    /// Its kind: a counter or a gauge.
    pub kind: MetricKind,
    /// The description of the quantity that is measured, as a sentence.
    pub help: &'static str,
    /// The numbers by the values of their labels.
    pub counts: Vec<(Labels, f64)>,
}

impl Metrics {
    /// Returns the counts so far.
    pub fn now(&self) -> Vec<Metric> {
        of_all(&self.0)
    }

    /// Returns the counts so far as plain numbers: of a histogram the count and the sum.
    pub fn plain(&self) -> Vec<PlainMetric> {
        self.now().into_iter().flat_map(Metric::plain).collect()
    }
}

/// Returns the counts of a server with its run and its process.
fn of_all(shared: &Shared) -> Vec<Metric> {
    let mut all = of_run::counted(&shared.session.watched(), Some(shared.session.summary()));
    all.extend(of_server::counted(shared));
    all.extend(of_process::counted());
    all
}

/// Returns the counts of a server so far, in the text format of OpenMetrics, which Prometheus reads.
pub fn text(shared: &Shared) -> String {
    written(of_all(shared))
}

/// Returns the metrics of a run without a server, as text.
pub fn text_of_run(watched: &Watched) -> String {
    let mut all = of_run::counted(watched, None);
    all.extend(of_process::counted());
    written(all)
}

fn written(metrics: Vec<Metric>) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Collected(metrics)));
    let mut text = String::new();
    encode(&mut text, &registry).expect("a text takes what is written");
    text
}

/// Counts that were read.
#[derive(Debug)]
struct Collected(Vec<Metric>);

impl Collector for Collected {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        self.0.iter().try_for_each(|metric| metric.encode(&mut encoder))
    }
}

impl Metric {
    fn encode(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let kind = match self.kind {
            MetricKind::Counter => MetricType::Counter,
            MetricKind::Gauge => MetricType::Gauge,
            MetricKind::Histogram => MetricType::Histogram,
        };
        let name = if self.kind == MetricKind::Counter { self.name.trim_end_matches("_total") } else { self.name };
        let mut family = encoder.encode_descriptor(name, self.help, None, kind)?;
        for (labels, count) in &self.counts {
            if labels.is_empty() {
                count.encode(&mut family, self.kind)?;
            } else {
                let labels: Labels = labels.iter().map(|(name, value)| (*name, escaped(value))).collect();
                count.encode(&mut family.encode_family(&labels)?, self.kind)?;
            }
        }
        Ok(())
    }

    fn plain(self) -> Vec<PlainMetric> {
        let Metric { name, kind, help, counts } = self;
        let named = |suffix: &str, kind, of: &dyn Fn(&Count) -> f64| PlainMetric {
            name: format!("{name}{suffix}"),
            kind,
            help,
            counts: counts.iter().map(|(labels, count)| (labels.clone(), of(count))).collect(),
        };
        match kind {
            MetricKind::Histogram => {
                vec![
                    named("_count", MetricKind::Counter, &Count::count),
                    named("_sum", MetricKind::Counter, &Count::value),
                ]
            }
            kind => vec![named("", kind, &Count::value)],
        }
    }
}

impl Count {
    fn encode(&self, to: &mut MetricEncoder, kind: MetricKind) -> fmt::Result {
        match (self, kind) {
            (Count::Whole(count), MetricKind::Counter) => to.encode_counter::<NoLabelSet, _, u64>(count, None),
            (Count::Part(value), MetricKind::Counter) => to.encode_counter::<NoLabelSet, _, u64>(value, None),
            (Count::Whole(count), _) => to.encode_gauge(count),
            (Count::Part(value), _) => to.encode_gauge(value),
            (Count::Spread(spread), _) => {
                let bounds = BOUNDS.iter().map(|&bound| bound as f64 / 1e9).chain([f64::MAX]);
                let buckets: Vec<(f64, u64)> = bounds.zip(spread.counts).collect();
                to.encode_histogram::<NoLabelSet>(spread.sum, spread.count(), &buckets, None)
            }
        }
    }

    /// Returns the number; of durations their sum.
    fn value(&self) -> f64 {
        match self {
            Count::Whole(count) => *count as f64,
            Count::Part(value) => *value,
            Count::Spread(spread) => spread.sum,
        }
    }

    /// Returns the value; for a histogram of durations, the number of observations.
    fn count(&self) -> f64 {
        match self {
            Count::Spread(spread) => spread.count() as f64,
            other => other.value(),
        }
    }
}

/// Returns the value of a label, as the format wants it.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Returns a metric of counts.
fn counter(name: &'static str, help: &'static str, counts: Vec<(Labels, u64)>) -> Metric {
    whole(name, MetricKind::Counter, help, counts)
}

/// Returns a metric of a number of things that there are now.
fn gauge(name: &'static str, help: &'static str, counts: Vec<(Labels, u64)>) -> Metric {
    whole(name, MetricKind::Gauge, help, counts)
}

fn whole(name: &'static str, kind: MetricKind, help: &'static str, counts: Vec<(Labels, u64)>) -> Metric {
    debug_assert!(name.ends_with("_total") == (kind == MetricKind::Counter), "{name} is named after its kind");
    let counts = counts.into_iter().map(|(labels, count)| (labels, Count::Whole(count))).collect();
    Metric { name, kind, help, counts }
}

/// Returns a metric of quantities that are as things are now.
fn quantity(name: &'static str, help: &'static str, counts: Vec<(Labels, f64)>) -> Metric {
    let counts = counts.into_iter().map(|(labels, value)| (labels, Count::Part(value))).collect();
    Metric { name, kind: MetricKind::Gauge, help, counts }
}

/// Returns a metric of durations.
fn histogram(name: &'static str, help: &'static str, counts: Vec<(Labels, SpreadAt)>) -> Metric {
    let counts = counts.into_iter().map(|(labels, spread)| (labels, Count::Spread(Box::new(spread)))).collect();
    Metric { name, kind: MetricKind::Histogram, help, counts }
}

/// Returns the samples of a metric that has one sample, without labels.
fn one<T>(count: T) -> Vec<(Labels, T)> {
    vec![(Labels::new(), count)]
}

/// Returns a label.
fn by(name: &'static str, value: impl Into<String>) -> Labels {
    vec![(name, value.into())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_runtime::Spread;

    #[test]
    fn texts_have_the_names_and_escapes_of_the_format() {
        let spread = Spread::default();
        spread.add(3_000_000, 2);
        spread.add(u64::MAX, 1);
        let reasons = vec![(by("reason", "x\"y\\z\n"), 3), (by("reason", ""), 0)];
        let text = written(vec![
            counter("tidemill_aborts_total", "Aborts, by reason.", reasons),
            gauge("tidemill_calls_in_flight", "Calls without a reply yet.", one(8)),
            quantity("tidemill_lag_seconds", "Lag.", one(0.5)),
            histogram("tidemill_stage_seconds", "Stages.", vec![(by("stage", "log"), spread.read())]),
        ]);
        let lines: Vec<&str> = text.lines().collect();
        for line in [
            "# HELP tidemill_aborts Aborts, by reason.",
            "# TYPE tidemill_aborts counter",
            r#"tidemill_aborts_total{reason="x\"y\\z\n"} 3"#,
            r#"tidemill_aborts_total{reason=""} 0"#,
            "# TYPE tidemill_calls_in_flight gauge",
            "tidemill_calls_in_flight 8",
            "tidemill_lag_seconds 0.5",
            r#"tidemill_stage_seconds_count{stage="log"} 3"#,
            r#"tidemill_stage_seconds_bucket{le="0.0025",stage="log"} 0"#,
            r#"tidemill_stage_seconds_bucket{le="0.005",stage="log"} 2"#,
            r#"tidemill_stage_seconds_bucket{le="+Inf",stage="log"} 3"#,
            "# EOF",
        ] {
            assert!(lines.contains(&line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn a_histogram_is_two_plain_counts() {
        let spread = Spread::default();
        spread.add(500_000_000, 4);
        let metric = histogram("tidemill_log_sync_seconds", "Syncs.", one(spread.read()));
        let plain: Vec<(String, MetricKind, f64)> =
            metric.plain().into_iter().map(|metric| (metric.name, metric.kind, metric.counts[0].1)).collect();
        assert_eq!(
            plain,
            [
                ("tidemill_log_sync_seconds_count".into(), MetricKind::Counter, 4.0),
                ("tidemill_log_sync_seconds_sum".into(), MetricKind::Counter, 2.0)
            ]
        );
    }
}
