//! The executor by itself, with small tasks written by hand.

use std::collections::BTreeSet;
use std::task::Poll;

use futures_util::FutureExt;
use tidegate::clock::Clock;
use tidegate::task;
use tokio::sync::{Notify, mpsc, oneshot};

use super::*;

const STEPS: u64 = 10_000;

/// Which of five tasks, each with three awaits, reported in which order.
fn order(seed: u64) -> (Vec<u64>, u64) {
    let mut executor = Executor::new(seed, STEPS);
    let handle = executor.handle(Group(0));
    let order = executor.run("main", async move {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        for number in 0..5 {
            let (sender, clock) = (sender.clone(), handle.clone());
            drop(task::spawn(&handle, format!("task {number}"), async move {
                for _ in 0..3 {
                    sender.send(number).unwrap();
                    clock.sleep(Duration::from_micros(10)).await;
                }
            }));
        }
        drop(sender);
        let mut order = Vec::new();
        while let Some(number) = receiver.recv().await {
            order.push(number);
        }
        order
    });
    let order = order.unwrap();
    executor.finish().unwrap();
    (order, executor.trace_hash())
}

#[test]
fn one_seed_is_one_run_and_others_differ() {
    let (mut orders, mut hashes) = (BTreeSet::new(), BTreeSet::new());
    for seed in 0..50 {
        let (order_, hash) = order(seed);
        assert_eq!((order_.clone(), hash), order(seed), "seed {seed}");
        orders.insert(order_);
        hashes.insert(hash);
    }
    assert_eq!(hashes.len(), 50);
    assert!(orders.len() > 45, "{} orders", orders.len());
}

#[test]
fn time_moves_to_the_next_timer() {
    let mut executor = Executor::new(1, STEPS);
    let clock = executor.handle(Group(0));
    let day = Duration::from_secs(24 * 3600);
    let (early, late) = executor
        .run("main", async move {
            let start = clock.wall();
            // A timer that is dropped holds nothing up.
            assert!(clock.sleep(day * 1000).now_or_never().is_none());
            clock.sleep(day).await;
            (start, clock.wall())
        })
        .unwrap();
    assert!(late - early >= day);
    assert!(late - early < day + Duration::from_secs(1));
    executor.finish().unwrap();
}

#[test]
fn a_deadlock_names_every_task() {
    let mut executor = Executor::new(2, STEPS);
    let handle = executor.handle(Group(0));
    let error = executor.run("main", async move {
        let channel = handle.label("a -> b");
        let (one, other) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (first, second, reporter) = (Arc::clone(&one), Arc::clone(&other), handle.clone());
        drop(task::spawn(&handle, "waiter", async move {
            let mut waiting = Box::pin(first.notified());
            std::future::poll_fn(|context| {
                reporter.waits_for(Wait::Message(channel));
                waiting.poll_unpin(context)
            })
            .await;
            second.notify_one();
        }));
        other.notified().await;
        one.notify_one();
    });
    let text = error.unwrap_err().to_string();
    assert!(text.contains("waiter waits for a message on a -> b"), "{text}");
    assert!(text.contains("main waits for something unknown"), "{text}");
}

#[test]
fn tasks_that_spin_reach_the_limit() {
    let mut executor = Executor::new(3, 500);
    let error = executor.run("spinner", async {
        loop {
            let mut yielded = false;
            std::future::poll_fn(|context| {
                context.waker().wake_by_ref();
                if std::mem::replace(&mut yielded, true) { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
    });
    let Err(Stuck::StepLimit { steps, waiting }) = error else { panic!("the spinner came to an end: {error:?}") };
    assert_eq!((steps, waiting.len()), (500, 1));
}

#[test]
fn off_thread_work_runs_later() {
    let mut executor = Executor::new(4, STEPS);
    let handle = executor.handle(Group(0));
    let answer = executor.run("main", async move {
        let work = task::compute(&handle, "answer", || 42);
        work.await.unwrap()
    });
    assert_eq!(answer.unwrap(), 42);
}

#[test]
fn a_crash_drops_a_group_where_it_stands() {
    let mut executor = Executor::new(5, STEPS);
    let (victim, survivor) = (executor.handle(Group(1)), executor.handle(Group(2)));
    let (sender, receiver) = oneshot::channel::<()>();
    drop(task::spawn(&victim, "victim", async move {
        std::future::pending::<()>().await;
        sender.send(()).unwrap();
    }));
    let seen = task::spawn(&survivor, "survivor", async move { receiver.await.is_err() });
    executor.run_steps(20).unwrap();
    survivor.crash(Group(1));
    assert!(executor.run("main", seen).unwrap().unwrap(), "the survivor saw the victim's end");
    executor.finish().unwrap();
}

#[test]
fn one_task_of_a_group_crashes_and_its_owner_sees_it() {
    let mut executor = Executor::new(6, STEPS);
    let (world, group) = (executor.handle(Group(1)), executor.handle(Group(2)));
    let (dropped, ended) = executor
        .run("main", async move {
            let wait = |micros| {
                let clock = group.clone();
                async move { clock.sleep(Duration::from_micros(micros)).await }
            };
            let tasks = [task::spawn(&group, "one", wait(50)), task::spawn(&group, "other", wait(50))];
            world.sleep(Duration::from_micros(10)).await;
            assert_eq!(world.crash_one(Group(3), 7), None);
            assert_eq!(world.crash_one(Group(2), 7).as_deref(), Some("other"));
            let [one, other] = tasks;
            (other.await.is_err(), one.await.is_ok())
        })
        .unwrap();
    assert!(dropped && ended);
}

#[test]
fn a_paused_group_stands_still_while_time_goes_on() {
    let mut executor = Executor::new(7, STEPS);
    let (world, group) = (executor.handle(Group(1)), executor.handle(Group(2)));
    executor
        .run("main", async move {
            let clock = group.clone();
            let mut sleeper =
                task::spawn(&group, "sleeper", async move { clock.sleep(Duration::from_millis(1)).await });
            world.pause(Group(2));
            world.sleep(Duration::from_secs(1)).await;
            assert!((&mut sleeper).now_or_never().is_none());
            world.go_on(Group(2));
            sleeper.await.unwrap();
            assert!(world.tasks(Group(2)).is_empty());
        })
        .unwrap();
    executor.finish().unwrap();
}
