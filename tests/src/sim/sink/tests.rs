//! The sink by itself: nothing is visible before its commit, and a commit counts once.

use super::super::executor::{Executor, Group};
use super::*;

#[test]
fn output_shows_once_it_is_committed() {
    let mut executor = Executor::new(1, 10_000);
    let handle = executor.handle(Group(0));
    let env = Env {
        clock: Arc::new(handle.clone()),
        workers: Arc::new(handle.clone()),
        control: Arc::new(handle.clone()),
        compute: Arc::new(handle.clone()),
        transport: Arc::new(tidegate::runtime::channel::InProcess),
        storage: Arc::new(tidegate::checkpoint::MemoryOnly),
        seed: 1,
    };
    let output = Arc::new(Output::default());
    let pace = Pace { most_records: 1, delay_us: 100 };
    let sink = SimSink { name: "sink", output: Arc::clone(&output), pace, counters: Arc::default() };
    let count = move |stage| output.records(stage).values().map(Vec::len).sum::<usize>();
    executor
        .run("job", async move {
            sink.prepare_target(&env).await.unwrap();
            let subtask = SubtaskId { node: "out".into(), index: 3 };
            let mut writer = sink.writer(WriterContext { subtask, run: "run".into(), env: env.clone() });
            assert_eq!(writer.prepare().await.unwrap(), []);
            let mut batch = Batch::new();
            batch.push(None, b"a", None);
            writer.write(&batch).await.unwrap();
            let first = writer.prepare().await.unwrap();
            writer.write(&batch).await.unwrap();
            assert_eq!((count(Stage::Written), count(Stage::Prepared), count(Stage::Committed)), (1, 1, 0));
            let mut committer = sink.committer(&env);
            committer.commit(first.clone()).await.unwrap();
            committer.commit(first).await.unwrap();
            assert_eq!((count(Stage::Prepared), count(Stage::Committed)), (0, 1));
            committer.discard("another run").await.unwrap();
            assert_eq!(count(Stage::Discarded), 0);
            committer.discard("run").await.unwrap();
            assert_eq!((count(Stage::Committed), count(Stage::Discarded)), (1, 1));
            assert!(committer.commit(vec![Committable(b"x".to_vec())]).await.is_err());
        })
        .unwrap();
}
