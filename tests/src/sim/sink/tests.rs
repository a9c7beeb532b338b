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
        background: Arc::new(handle.clone()),
        transport: Arc::new(tidegate::runtime::channel::InProcess),
        storage: Arc::new(tidegate::checkpoint::MemoryOnly),
        seed: 1,
    };
    let output = Arc::new(Output::default());
    let pace = Pace { most_records: 1, delay_us: 100 };
    let sink = SimSink { name: "sink", output: Arc::clone(&output), pace, around: Surroundings::kind() };
    let count = move |stage| output.records(stage).values().map(Vec::len).sum::<usize>();
    executor
        .run("job", async move {
            assert_eq!(sink.prepare_target(&env, TargetStart::Fresh).await.unwrap(), []);
            let subtask = SubtaskId { node: "out".into(), index: 3 };
            let owner = Owner { job: "job".into(), attempt: Attempt::first(1) };
            let mut writer = sink.writer(WriterContext { subtask, owner: owner.clone(), env: env.clone() });
            assert_eq!(writer.prepare().await.unwrap().await.unwrap(), []);
            let mut batch = Batch::new();
            batch.push(None, b"a", None);
            writer.write(&batch).await.unwrap();
            let first = writer.prepare().await.unwrap();
            // What is written before the epoch is durable belongs to the next one.
            writer.write(&batch).await.unwrap();
            let first = first.await.unwrap();
            assert_eq!((count(Stage::Written), count(Stage::Prepared), count(Stage::Committed)), (1, 1, 0));
            let mut committer = sink.committer(&env);
            committer.check(&first).await.unwrap();
            committer.commit(first.clone()).await.unwrap();
            committer.check(&first).await.unwrap();
            committer.commit(first).await.unwrap();
            assert_eq!((count(Stage::Prepared), count(Stage::Committed)), (0, 1));
            for kept in [owner.clone(), Owner { job: "other".into(), attempt: Attempt::first(9) }] {
                committer.sweep(&kept).await.unwrap();
                assert_eq!(count(Stage::Discarded), 0);
            }
            committer.sweep(&Owner { attempt: owner.attempt.next(), ..owner }).await.unwrap();
            assert_eq!((count(Stage::Committed), count(Stage::Discarded)), (1, 1));
            assert!(committer.commit(vec![Committable(b"x".to_vec())]).await.is_err());
        })
        .unwrap();
}
