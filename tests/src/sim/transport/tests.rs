//! The transport by itself, with a sender and a receiver written by hand.

use std::future::poll_fn;

use tidegate::id::{OutputId, SubtaskId};
use tidegate::task;

use super::super::executor::{Executor, Group};
use super::*;

fn id() -> ChannelId {
    let subtask = |node: &str| SubtaskId { node: node.into(), index: 0 };
    ChannelId { from: subtask("a"), output: OutputId::MAIN, to: subtask("b"), input: 0 }
}

fn batch(number: u64) -> Message {
    let mut batch = Batch::new();
    for _ in 0..=number % 3 {
        batch.push(None, &number.to_le_bytes(), None);
    }
    Message::Batch(batch)
}

#[test]
fn messages_arrive_late_but_in_order_and_the_bound_holds() {
    let counters = Arc::new(Counters::default());
    for seed in 0..200 {
        let mut executor = Executor::new(seed, 10_000);
        let handle = executor.handle(Group(0));
        let transport = SimTransport::new(handle.clone(), seed, Arc::clone(&counters));
        let (mut sender, mut receiver) = transport.channel(&id(), 1 << 20);
        let sending = task::spawn(&handle, "sender", async move {
            for number in 0..40 {
                if number % 7 == 0 {
                    sender.send(Message::Watermark(Watermark(number)));
                }
                poll_fn(|context| sender.poll_ready(context)).await.unwrap();
                sender.send(batch(number.cast_unsigned()));
            }
            sender.send(Message::EndOfInput);
        });
        let received = executor.run("receiver", async move {
            let mut received = Vec::new();
            while let Some(message) = poll_fn(|context| receiver.poll_receive(context)).await {
                received.push(message);
            }
            received
        });
        let mut expected = Vec::new();
        for number in 0..40 {
            if number % 7 == 0 {
                expected.push(Message::Watermark(Watermark(number)));
            }
            expected.push(batch(number.cast_unsigned()));
        }
        expected.push(Message::EndOfInput);
        assert_eq!(received.unwrap(), expected, "seed {seed}");
        assert!(executor.run("end", sending).unwrap().is_ok(), "seed {seed}");
        executor.finish().unwrap();
    }
    assert!(counters.prompt_messages.load(Relaxed) > 0);
    assert!(counters.delayed_messages.load(Relaxed) > 0);
    assert!(counters.full_channels.load(Relaxed) > 0);
}

#[test]
fn a_sender_without_a_receiver_is_told() {
    for seed in 0..100 {
        let mut executor = Executor::new(seed, 10_000);
        let handle = executor.handle(Group(0));
        let transport = SimTransport::new(handle.clone(), seed, Arc::default());
        let (mut sender, mut receiver) = transport.channel(&id(), 1);
        let clock = handle.clone();
        let sending = task::spawn(&handle, "sender", async move {
            while poll_fn(|context| sender.poll_ready(context)).await.is_ok() {
                sender.send(batch(0));
            }
        });
        executor
            .run("receiver", async move {
                for _ in 0..seed % 5 {
                    poll_fn(|context| receiver.poll_receive(context)).await.unwrap();
                }
                clock.timer(clock.now_ns() + seed * 1_000).await;
            })
            .unwrap();
        assert!(executor.run("end", sending).unwrap().is_ok(), "seed {seed}");
    }
}

#[test]
#[should_panic(expected = "without asking for room")]
fn sending_without_room_is_noticed() {
    let executor = Executor::new(1, 100);
    let transport = SimTransport::new(executor.handle(Group(0)), 1, Arc::default());
    let (mut sender, _receiver) = transport.channel(&id(), 100);
    sender.send(batch(1));
}
