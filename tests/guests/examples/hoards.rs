//! Keeps memory from call to call: as much as its records say, in decimal. Copes when it gets none.

use tidegate_test_guests::*;

use std::cell::RefCell;

thread_local! {
    static HOARD: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

struct Hostile;

impl Operator for Hostile {
    fn process(_: u32, records: Batch) -> Result<(), Failure> {
        let text = String::from_utf8_lossy(string(&records.values, 0)).into_owned();
        let bytes: usize =
            text.parse().map_err(|_| Failure { message: format!("not a number: {text}"), position: None })?;
        let mut memory = Vec::new();
        if memory.try_reserve_exact(bytes).is_err() {
            return Err(Failure { message: format!("no room for {bytes} bytes"), position: Some(0) });
        }
        memory.resize(bytes, 1);
        HOARD.with_borrow_mut(|hoard| hoard.push(memory));
        Ok(())
    }
}

guest!(Hostile);
