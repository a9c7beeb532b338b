use std::io::Write;
use std::net::{Shutdown, TcpListener};

use super::*;
use crate::connectors::testing::{block_on, env, reader_context, records};

/// A listener on loopback, and a reader that is about to connect to it.
fn setup(table: &str, max_record_bytes: usize) -> (TcpListener, Box<dyn SourceReader>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut table: toml::Table = table.parse().unwrap();
    table.insert("address".to_owned(), address.to_string().into());
    let source = SocketSettings::deserialize(table).unwrap().build(Path::new("")).unwrap();
    assert!(source.cannot_replay().unwrap().contains(&address.to_string()));
    let env = env();
    let mut enumerator = source.enumerator(&env, None);
    let mut reader = source.reader(reader_context(&env, 0, max_record_bytes));
    block_on(async {
        enumerator.start().await.unwrap();
        reader.add_split(enumerator.next_split(0).await.unwrap().unwrap()).unwrap();
        assert_eq!(enumerator.next_split(1).await.unwrap(), None);
    });
    (listener, reader)
}

/// Reads so many lines, giving up and taking up each wait once.
fn lines(reader: &mut dyn SourceReader, count: usize) -> Vec<String> {
    let mut lines = Vec::new();
    while lines.len() < count {
        let event = match block_on(async { reader.next().now_or_never() }) {
            Some(event) => event,
            None => block_on(reader.next()),
        };
        let ReaderEvent::Batch(batch) = event.unwrap() else { panic!("the split has ended") };
        lines.extend(records(&batch).into_iter().map(|(_, value, _)| String::from_utf8(value).unwrap()));
    }
    lines
}

#[test]
fn connects_again_when_the_peer_closes() {
    let (listener, mut reader) = setup("", 100);
    let serve = |texts: &'static [&'static str]| {
        let listener = listener.try_clone().unwrap();
        crate::task::compute(&*env().compute, "serve", move || {
            let (mut peer, _) = listener.accept().unwrap();
            for text in texts {
                peer.write_all(text.as_bytes()).unwrap();
            }
            peer.shutdown(Shutdown::Both).unwrap();
        })
    };
    let first = serve(&["a\nb", "c\r\n", "last"]);
    assert_eq!(lines(&mut *reader, 3), ["a", "bc", "last"]);
    let second = serve(&["d\n"]);
    assert_eq!(lines(&mut *reader, 1), ["d"]);
    block_on(async {
        first.await.unwrap();
        second.await.unwrap();
    });
    assert_eq!(reader.snapshot().len(), 1);
    assert_eq!(reader.progress(), 12);
}

#[test]
fn ends_with_its_peer_or_fails_without_one_if_told() {
    let (listener, mut reader) = setup("reconnect = false", 100);
    let serve = crate::task::compute(&*env().compute, "serve", move || {
        listener.accept().unwrap().0.write_all(b"a\nb").unwrap();
    });
    assert_eq!(lines(&mut *reader, 2), ["a", "b"]);
    assert!(matches!(block_on(reader.next()).unwrap(), ReaderEvent::SplitFinished(_)));
    assert!(reader.snapshot().is_empty());
    block_on(serve).unwrap();

    let (listener, mut reader) = setup("reconnect = false", 100);
    let address = listener.local_addr().unwrap();
    drop(listener);
    assert_eq!(block_on(reader.next()).unwrap_err().to_string(), format!("cannot connect to {address}"));
}

#[test]
fn long_lines_are_named_by_peer_and_limit() {
    for text in ["ok\n12345678901\n", "ok\n123456789012"] {
        let (listener, mut reader) = setup("", 10);
        let address = listener.local_addr().unwrap();
        let serve = crate::task::compute(&*env().compute, "serve", move || {
            let (mut peer, _) = listener.accept().unwrap();
            peer.write_all(text.as_bytes()).unwrap();
            peer
        });
        assert_eq!(lines(&mut *reader, 1), ["ok"]);
        let error = block_on(reader.next()).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{address}: a line is longer than the limit of 10B")), "{error}");
        drop(block_on(serve).unwrap());
    }
}

#[test]
fn a_job_that_goes_on_connects_again_unless_the_peer_had_ended_it() {
    let settings = SocketSettings { address: "localhost:9000".to_owned(), reconnect: false };
    let source = settings.build(Path::new("")).unwrap();
    let start = |restored| {
        let mut enumerator = source.enumerator(&env(), restored);
        block_on(enumerator.start()).map(|()| enumerator)
    };
    let next = |enumerator: &mut dyn SplitEnumerator| block_on(enumerator.next_split(0)).unwrap();
    let mut enumerator = start(None).unwrap();
    let unread = enumerator.snapshot();
    let split = next(&mut *enumerator).unwrap();
    let read = enumerator.snapshot();
    for (state, splits, again) in [(&unread, vec![], true), (&read, vec![split], true), (&read, vec![], false)] {
        let mut enumerator = start(Some(RestoredSource { enumerator: state.clone(), splits })).unwrap();
        assert_eq!(next(&mut *enumerator).is_some(), again);
        assert_eq!(next(&mut *enumerator), None);
    }
    let error = start(Some(RestoredSource { enumerator: b"{}".to_vec(), splits: vec![] })).err().unwrap().to_string();
    assert!(error.starts_with("the state of a socket source is not readable"), "{error}");
}

#[test]
fn addresses_are_checked() {
    for (address, good) in
        [("localhost:9000", true), ("[::1]:1", true), ("localhost", false), (":1", false), ("a:0", false)]
    {
        let settings = SocketSettings { address: address.to_owned(), reconnect: true };
        assert_eq!(settings.build(Path::new("")).is_ok(), good, "{address}");
    }
}
