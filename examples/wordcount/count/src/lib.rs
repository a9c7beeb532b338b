//! Counts how often each key has come by and says so each time: `word<TAB>count`.

use tidegate_sdk::{Context, Error, NoConfig, Operator, Output, Record, ReducingState, Setup};

struct Count {
    count: ReducingState<u64>,
}

impl Operator for Count {
    type Config = NoConfig;

    fn open(_: NoConfig, setup: &mut Setup) -> Result<Self, Error> {
        Ok(Self { count: setup.state("count").reducing(|before, more| before + more) })
    }

    fn process(&mut self, word: Record<'_>, context: &mut Context) -> Result<(), Error> {
        let count = self.count.add(context, 1)?;
        context.emit_with(Output::MAIN, |value| {
            value.extend_from_slice(word.key().unwrap_or_default());
            value.push(b'\t');
            value.extend_from_slice(itoa::Buffer::new().format(count).as_bytes());
        });
        Ok(())
    }
}

tidegate_sdk::export!(Count);

#[cfg(test)]
mod tests {
    use tidegate_sdk::testing::{Harness, Input};

    use super::*;

    #[test]
    fn each_word_has_a_count_of_its_own() {
        let mut count: Harness<Count> = Harness::open("{}").unwrap();
        count.process(["tide", "gate", "tide"].map(|word| Input::keyed(word, ""))).unwrap();
        count.process([Input::keyed("tide", "")]).unwrap();
        assert_eq!(count.take_values(), ["tide\t1", "gate\t1", "tide\t2", "tide\t3"]);
    }
}
