//! Breaks the rule that its one record names.

use tidegate_test_guests::*;

struct Hostile;

const VALUES: u32 = 1;
const LISTS: u32 = 2;

impl Operator for Hostile {
    fn open(_: String) -> Result<Descriptor, Failure> {
        let states = vec![state(VALUES, "values", StateKind::KeyedValue), state(LISTS, "lists", StateKind::KeyedList)];
        Ok(Descriptor { states, side_outputs: vec![SideOutput { id: 3, name: "late".to_owned() }] })
    }

    fn process(_: u32, records: Batch) -> Result<(), Failure> {
        match string(&records.values, 0) {
            b"slot" => drop(keyed_state::get(VALUES, 7)),
            b"slots" => keyed_state::update(VALUES, &[0, 9], &Column { data: vec![], offsets: vec![0, 0, 0] }),
            b"lengths" => keyed_state::update(VALUES, &[0], &empty()),
            b"store lengths" => {
                keyed_state::store(VALUES, &OptionalColumn { values: empty(), missing: vec![] });
            }
            b"missing" => {
                keyed_state::store(VALUES, &OptionalColumn { values: single(b"a"), missing: vec![1] });
            }
            b"twice" => drop(keyed_state::load_lists(LISTS, &[0, 0])),
            b"state" => drop(keyed_state::get(8, 0)),
            b"kind" => drop(keyed_state::get(LISTS, 0)),
            b"output" => collector::emit(2, &record(b"a")),
            b"position" => collector::reject(5, "no reason"),
            b"random" => drop(random::get_bytes(65537)),
            b"metric" => metrics::add_to_counter("", 1),
            b"timers" => timers::schedule(TimeDomain::EventTime, &[0], &[0], &[5]),
            b"operator state" => drop(operator_state::load_list(VALUES)),
            other => panic!("no such rule: {other:?}"),
        }
        Ok(())
    }

    fn on_watermark() -> Result<(), Failure> {
        keyed_state::get(VALUES, 0);
        Ok(())
    }

    fn close() -> Result<(), Failure> {
        collector::emit(0, &record(b"too late"));
        Ok(())
    }
}

guest!(Hostile);
