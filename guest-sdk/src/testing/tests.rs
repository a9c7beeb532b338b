//! The SDK against the host in memory.

use proptest::prelude::*;
use serde::Deserialize;

use super::{Harness, Input};
use crate::codec::{LittleEndian, Ordered, Postcard, Raw};
use crate::{
    AggregatingState, Context, Counter, Emit, Error, Gauge, Histogram, ListState, MapState, NoConfig, Operator, Output,
    Record, ReducingState, Setup, ValueState,
};

/// Obeys commands, one a record, so that each test says what it is about.
struct Obedient {
    value: ValueState<String, Raw>,
    sum: ReducingState<i64, LittleEndian>,
    mean: AggregatingState<i64, (i64, i64), i64>,
    list: ListState<String>,
    map: MapState<i64, String, Ordered>,
    side: Output,
    counter: Counter,
    gauge: Gauge,
    histogram: Histogram,
}

impl Operator for Obedient {
    type Config = NoConfig;

    fn open(_: NoConfig, setup: &mut Setup) -> Result<Self, Error> {
        let mean = |(count, sum): &(i64, i64)| sum / count;
        Ok(Self {
            value: setup.state("value").value(),
            sum: setup.state("sum").reducing(|a, b| a + b),
            mean: setup
                .state("mean")
                .aggregating(|(count, sum), number| (*count, *sum) = (*count + 1, *sum + number), mean),
            list: setup.state("list").list(),
            map: setup.state("map").map(),
            side: setup.side_output("side"),
            counter: setup.counter("seen"),
            gauge: setup.gauge("level"),
            histogram: setup.histogram("sizes"),
        })
    }

    fn process(&mut self, record: Record<'_>, context: &mut Context) -> Result<(), Error> {
        for command in record.text()?.split("; ") {
            let mut words = command.split(' ');
            let (verb, word) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let more = words.next().unwrap_or_default().to_owned();
            match verb {
                "emit" => context.emit(word),
                "emit-keyed" => context.emit_keyed(word, &more),
                "emit-side" => context.emit_to(self.side, word),
                "emit-bare" => context.send(Emit::new(word).without_key().without_timestamp()),
                "emit-at" => context.send(Emit::new(&more).timestamp(word.parse()?)),
                "flood" => (0..word.parse()?).for_each(|_| context.emit("drop")),
                "get" => {
                    let value = self.value.get(context)?;
                    context.emit(value.as_deref().unwrap_or("none"));
                }
                "set" => self.value.set(context, word.to_owned())?,
                "extend" => self.value.update(context, |value| value.get_or_insert_default().push_str(word))?,
                "clear" => self.value.clear(context)?,
                "sum" => {
                    let sum = self.sum.add(context, word.parse()?)?;
                    context.emit(sum.to_string());
                }
                "mean" => {
                    let mean = self.mean.add(context, word.parse()?)?;
                    context.emit(mean.to_string());
                }
                "add" => self.list.add(context, word.to_owned())?,
                "list" => {
                    let list = self.list.with(context, |items| items.join(","))?;
                    context.emit(list);
                }
                "replace" => self.list.set(context, word.split(',').map(str::to_owned).collect())?,
                "drop-list" => self.list.clear(context)?,
                "put" => self.map.put(context, &word.parse()?, more)?,
                "at" => {
                    let value = self.map.get(context, &word.parse()?)?;
                    context.emit(value.as_deref().unwrap_or("none"));
                }
                "remove" => self.map.remove(context, &word.parse()?)?,
                "extend-entry" => {
                    self.map.update(context, &word.parse()?, |value| value.get_or_insert_default().push_str(&more))?;
                }
                "drop-map" => self.map.clear(context)?,
                "entries" => {
                    let mut entries = Vec::new();
                    self.map.for_each(context, |key, value| {
                        entries.push(format!("{key}={value}"));
                        Ok(())
                    })?;
                    context.emit(entries.join(","));
                }
                "meter" => {
                    self.counter.add(2);
                    self.gauge.set(word.parse()?);
                    self.histogram.observe(word.parse()?);
                }
                "log" => crate::warn!("{word}"),
                "reject" => context.reject(word),
                "fail" => return Err(Error::new(word)),
                "time" => {
                    let time = context.processing_time();
                    context.emit(format!("{time} {:?}", context.watermark()));
                }
                _ => return Err(Error::new(format_args!("what is {command:?}?"))),
            }
        }
        Ok(())
    }

    fn on_watermark(&mut self, watermark: i64, context: &mut Context) -> Result<(), Error> {
        context.emit(format!("watermark {watermark}"));
        Ok(())
    }

    fn on_end_of_input(&mut self, input: u32, remaining: u32, context: &mut Context) -> Result<(), Error> {
        if remaining == 0 {
            self.value.get(context)?;
        }
        context.emit(format!("end of {input}"));
        Ok(())
    }
}

fn open() -> Harness<Obedient> {
    Harness::open("{}").unwrap()
}

/// Runs commands under their keys in one call.
fn run<const N: usize>(operator: &mut Harness<Obedient>, commands: [(&str, &str); N]) -> Vec<String> {
    operator.process(commands.map(|(key, command)| Input::keyed(key, command))).unwrap();
    operator.take_values()
}

#[test]
fn a_value_is_that_of_the_record_s_key() {
    let mut operator = open();
    let values = run(&mut operator, [("a", "get"), ("a", "set x"), ("b", "get"), ("b", "set y"), ("a", "get")]);
    assert_eq!(values, ["none", "none", "x"]);
    assert_eq!(run(&mut operator, [("b", "get"), ("a", "get"), ("c", "get")]), ["y", "x", "none"]);
    assert_eq!(run(&mut operator, [("a", "clear"), ("b", "extend z"), ("c", "clear")]), [""; 0]);
    assert_eq!(run(&mut operator, [("b", "get"), ("a", "get; set w")]), ["yz", "none"]);
    // All keys changed: the whole column goes back, a missing value among it.
    assert_eq!(run(&mut operator, [("a", "clear"), ("b", "set ; get")]), [""]);
    assert_eq!(operator.value_with::<String, Raw>("value", "a"), None);
    assert_eq!(operator.value_with::<String, Raw>("value", "b"), Some(String::new()));
}

#[test]
fn sums_and_means_run() {
    let mut operator = open();
    assert_eq!(run(&mut operator, [("a", "sum 1"), ("b", "sum 5"), ("a", "sum 2")]), ["1", "5", "3"]);
    assert_eq!(run(&mut operator, [("a", "sum -4"), ("a", "mean 4"), ("a", "mean 8")]), ["-1", "4", "6"]);
    assert_eq!(operator.value::<(i64, i64)>("mean", "a"), Some((2, 12)));
}

#[test]
fn lists_grow_and_are_replaced() {
    let mut operator = open();
    assert_eq!(run(&mut operator, [("a", "add x"), ("b", "add y"), ("a", "add z; list"), ("b", "list")]), ["x,z", "y"]);
    assert_eq!(run(&mut operator, [("a", "list; add w; list"), ("c", "list")]), ["x,z", "x,z,w", ""]);
    assert_eq!(run(&mut operator, [("a", "add v; replace p,q; add r; list"), ("b", "drop-list; list")]), ["p,q,r", ""]);
    assert_eq!(operator.list::<String>("list", "a"), ["p", "q", "r"]);
    assert_eq!(operator.list::<String>("list", "b"), [""; 0]);
}

#[test]
fn map_entries_are_read_written_and_visited_in_order() {
    let mut operator = open();
    let values =
        run(&mut operator, [("a", "at 1; put 1 x; at 1"), ("b", "at 1; put 2 y"), ("a", "put -5 z; put 30 w")]);
    assert_eq!(values, ["none", "x", "none"]);
    let values = run(&mut operator, [("a", "put 7 v; remove 1; entries"), ("b", "entries; extend-entry 2 y; at 2")]);
    assert_eq!(values, ["-5=z,7=v,30=w", "2=y", "yy"]);
    let many = (0..10).map(|number| format!("put {number} {number}")).collect::<Vec<_>>().join("; ");
    assert_eq!(run(&mut operator, [("c", &many), ("c", "entries")])[0].split(',').count(), 10);
    assert_eq!(run(&mut operator, [("a", "put 9 u; drop-map; entries; put 8 t"), ("a", "entries")]), ["", "8=t"]);
}

#[test]
fn a_batch_costs_few_calls_to_the_host() {
    let mut operator = open();
    let records = |_| (0..2000).map(|n| Input::keyed(format!("key {}", n % 300), "sum 1")).collect::<Vec<_>>();
    operator.process(records(0)).unwrap();
    let before = operator.host_calls();
    operator.process(records(1)).unwrap();
    // The slots, load, store, emit.
    assert_eq!(operator.host_calls() - before, 4);
}

/// The host refuses to hand over, or to take, more than 16 MiB at once.
#[test]
fn large_values_go_in_parts() {
    let mut operator = open();
    let word = "x".repeat(70_000);
    let records =
        |verb: &str| (0..300).map(|key| Input::keyed(key.to_string(), format!("{verb} {word}"))).collect::<Vec<_>>();
    for _ in 0..2 {
        operator.process(records("extend")).unwrap();
    }
    assert_eq!(operator.value_with::<String, Raw>("value", "299").unwrap().len(), 140_000);
    operator.process(records("add")).unwrap();
    operator.process(records("replace")).unwrap();
    operator.process(records("put 1")).unwrap();
    assert_eq!(
        (
            operator.list::<String>("list", "299"),
            operator.map_with::<i64, String, Ordered, Postcard>("map", "299").len()
        ),
        (vec![word.clone()], 1)
    );
    let gets = (0..300).map(|key| Input::keyed(key.to_string(), "get"));
    operator.process(gets).unwrap();
    assert!(operator.take_emitted().iter().all(|emitted| emitted.value.len() == 140_000));
}

#[test]
fn records_inherit_key_and_time_unless_given() {
    let mut operator = open();
    let record = |key: &str, command: &str, time| Input::keyed(key, command).at(time);
    operator
        .process([
            record("a", "emit 1", 10),
            record("b", "emit 2; emit 3", 20),
            record("c", "emit-at 7 4", 30),
            record("d", "emit-keyed z 5", 40),
            record("e", "emit 6", 50),
            record("f", "emit-bare 7; emit-side 8", 60),
        ])
        .unwrap();
    let emitted = operator.take_emitted().into_iter().map(|emitted| {
        let key = emitted.key.map(|key| String::from_utf8(key).unwrap());
        (emitted.output, String::from_utf8(emitted.value).unwrap(), key, emitted.timestamp)
    });
    let expected = [
        ("main", "1", Some("a"), Some(10)),
        ("main", "2", Some("b"), Some(20)),
        ("main", "3", Some("b"), Some(20)),
        ("main", "4", Some("c"), Some(7)),
        ("main", "5", Some("z"), Some(40)),
        ("main", "6", Some("e"), Some(50)),
        ("main", "7", None, None),
        ("side", "8", Some("f"), Some(60)),
    ];
    let expected =
        expected.map(|(output, value, key, time)| (output.into(), value.into(), key.map(str::to_owned), time));
    assert_eq!(emitted.collect::<Vec<_>>(), expected);
}

#[test]
fn an_error_names_the_record_and_undoes_the_call() {
    let mut operator = open();
    run(&mut operator, [("a", "set old; add old; put 1 old; sum 1; meter 1")]);
    let commands =
        [("b", "emit 1"), ("a", "set new; add new; put 1 new; sum 1; meter 2; log heard"), ("a", "fail why")];
    let failure = operator.process(commands.map(|(key, command)| Input::keyed(key, command))).unwrap_err();
    assert_eq!((failure.message.as_str(), failure.position), ("why", Some(2)));
    assert_eq!(operator.take_values(), [""; 0]);
    assert_eq!(operator.take_logged()[0].message, "heard");
    assert_eq!(
        (operator.counter("seen"), operator.gauge("level"), operator.observations("sizes")),
        (2, Some(1.0), &[1.0][..])
    );
    assert_eq!(run(&mut operator, [("a", "get; list; at 1; sum 0")]), ["old", "old", "old", "1"]);
}

#[test]
fn a_rejected_record_leaves_nothing_behind() {
    let mut operator = open();
    run(&mut operator, [("a", "set old; add old; put 1 old; sum 1; list")]);
    let rejected =
        "get; set new; set newer; add new; put 1 new; put 2 new; sum 1; emit x; emit-side x; reject why; emit y";
    let values =
        run(&mut operator, [("b", "emit 1"), ("a", rejected), ("a", "get; list; at 1; at 2; sum 0"), ("b", "emit 2")]);
    assert_eq!(values, ["1", "old", "old", "old", "none", "1", "2"]);
    assert_eq!(operator.take_emitted(), []);
    let rejected = operator.take_rejected();
    assert_eq!((rejected.len(), rejected[0].position, rejected[0].reason.as_str()), (1, 1, "why"));
}

/// What cannot be taken back in the guest the host must undo: the rejection becomes an error.
#[test]
fn a_rejection_that_comes_too_late_fails_the_call() {
    for command in ["extend x", "mean 1", "flood 5000", "add x; list", "replace x", "put 1 x; entries", "drop-map"] {
        let mut operator = open();
        let late = Input::keyed("a", format!("{command}; reject late"));
        let failure = operator.process([Input::keyed("b", "emit 1"), late]).unwrap_err();
        assert_eq!((failure.message.as_str(), failure.position), ("late", Some(1)), "{command}");
        // The record before could not be taken back; this one can.
        assert_eq!(run(&mut operator, [("a", command), ("b", "emit 1; reject early")]).last().map(String::as_str), {
            let alone = run(&mut open(), [("a", command)]);
            alone.last().cloned().as_deref().map(|last| last.to_owned().leak() as &str)
        });
        assert_eq!(operator.take_rejected()[0].reason, "early");
    }
}

#[test]
fn output_leaves_before_it_grows_large() {
    let mut operator = open();
    let before = operator.host_calls();
    assert_eq!(run(&mut operator, [("a", "flood 10000"), ("b", "emit 1")]).len(), 10_001);
    assert_eq!(operator.host_calls() - before, 3);
}

#[test]
fn state_is_out_of_reach_without_a_key() {
    let mut operator = open();
    let failure = operator.process([Input::unkeyed("emit 1"), Input::unkeyed("get")]).unwrap_err();
    assert_eq!(failure.position, Some(1));
    assert!(failure.message.contains(r#"set partition = "hash" for input 0"#), "{failure}");
    let failure = operator.end_input(0, 0).unwrap_err();
    assert!(failure.message.contains("it can only be used while one is processed"), "{failure}");
    operator.end_input(1, 1).unwrap();
    assert_eq!(operator.take_values(), ["end of 1"]);
}

#[test]
fn time_is_what_the_host_says() {
    let mut operator = open();
    operator.set_processing_time(7);
    assert_eq!(run(&mut operator, [("a", "time")]), ["7 None"]);
    operator.set_watermark(-3).unwrap();
    operator.set_processing_time(8);
    assert_eq!(run(&mut operator, [("a", "time")]), ["watermark -3", "8 Some(-3)"]);
}

#[test]
fn a_stored_value_of_another_encoding_is_an_error() {
    struct Changed(ValueState<i64, LittleEndian>);

    impl Operator for Changed {
        type Config = NoConfig;

        fn open(_: NoConfig, setup: &mut Setup) -> Result<Self, Error> {
            Ok(Self(setup.state("value").value()))
        }

        fn process(&mut self, _: Record<'_>, context: &mut Context) -> Result<(), Error> {
            self.0.get(context).map(drop)
        }
    }

    let mut before = open();
    run(&mut before, [("a", "set text")]);
    let mut after: Harness<Changed> = Harness::open("{}").unwrap();
    after.adopt_state(&before);
    let failure = after.process([Input::keyed("a", "")]).unwrap_err();
    let message = "what state value holds for this key cannot be decoded: expected 8 bytes, found 4";
    assert_eq!((failure.message.as_str(), failure.position), (message, Some(0)));
}

#[test]
fn a_config_that_does_not_fit_is_explained() {
    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only read by serde")]
    struct Config {
        #[serde(default)]
        limit: u32,
        #[serde(default)]
        rules: Vec<Rule>,
    }

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only read by serde")]
    struct Rule {
        name: String,
    }

    struct Configured;

    impl Operator for Configured {
        type Config = Config;

        fn open(_: Config, _: &mut Setup) -> Result<Self, Error> {
            Ok(Self)
        }

        fn process(&mut self, _: Record<'_>, _: &mut Context) -> Result<(), Error> {
            Ok(())
        }
    }

    for config in ["{}", "", "null", r#"{"limit": 3, "rules": [{"name": "a"}]}"#] {
        Harness::<Configured>::open(config).unwrap();
    }
    for (config, expected) in [
        (r#"{"limit": "x"}"#, "config.limit: invalid type: string \"x\", expected u32"),
        (r#"{"limits": 1}"#, "config.limits: unknown field `limits`, expected `limit` or `rules`"),
        (r#"{"rules": [{"name": "a"}, {}]}"#, "config.rules[1]: missing field `name`"),
    ] {
        assert_eq!(Harness::<Configured>::open(config).unwrap_err().message, expected);
    }
    let error = Harness::<Obedient>::open(r#"{"a": 1}"#).unwrap_err();
    assert_eq!(error.message, "config.a: unknown field `a`, there are no fields");
}

proptest! {
    /// However records are cut into batches, they come to the same: what a handle remembers within a call is what the
    /// host would have said.
    #[test]
    fn batches_make_no_difference(
        commands in prop::collection::vec((0..3usize, 0..VERBS.len(), 0..3u8), 1..60),
        cuts in prop::collection::vec(1..7usize, 60),
    ) {
        let records: Vec<Input> = commands
            .iter()
            .map(|&(key, verb, word)| Input::keyed(["a", "b", "c"][key], VERBS[verb].replace('#', &word.to_string())).at(7))
            .collect();
        let (mut whole, mut cut, mut single) = (open(), open(), open());
        let mut rest = records.as_slice();
        let mut outcome = [Vec::new(), Vec::new(), Vec::new()];
        whole.process(records.clone()).unwrap();
        outcome[0] = whole.take_emitted();
        for size in cuts {
            let (batch, others) = rest.split_at(size.min(rest.len()));
            rest = others;
            cut.process(batch.to_vec()).unwrap();
            outcome[1].extend(cut.take_emitted());
        }
        for record in records.clone() {
            single.process([record]).unwrap();
            outcome[2].extend(single.take_emitted());
        }
        prop_assert_eq!(&outcome[0], &outcome[2]);
        prop_assert_eq!(whole.state(), single.state());
        if rest.is_empty() {
            prop_assert_eq!(&outcome[1], &outcome[2]);
            prop_assert_eq!(cut.state(), single.state());
        }
    }
}

/// Commands that never fail; `#` becomes a number.
const VERBS: [&str; 21] = [
    "get",
    "set #",
    "clear",
    "extend #",
    "sum #",
    "mean #",
    "add #",
    "list",
    "replace #,x",
    "drop-list",
    "put # v#",
    "at #",
    "remove #",
    "extend-entry # x",
    "entries",
    "drop-map",
    "emit #",
    "emit-at # x",
    "set #; put 1 x; add y; sum 1; emit #; reject r",
    "emit #; get; reject r",
    "add #; emit #; emit #",
];
