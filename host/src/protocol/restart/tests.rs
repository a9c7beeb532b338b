use proptest::prelude::*;

use super::*;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Failures at growing times, each with a random number.
fn failures(longest_gap: u64) -> impl Strategy<Value = Vec<(Duration, f64)>> {
    prop::collection::vec((0..longest_gap, 0.0..1.0), 1..40).prop_map(|failures| {
        let mut now = 0;
        let failures = failures.into_iter().map(|(gap, random)| {
            now += gap;
            (ms(now), random)
        });
        failures.collect()
    })
}

#[test]
fn a_job_without_a_strategy_is_given_up() {
    let decision = RestartState::new(RestartSettings::None).failed(ms(5), 0.5);
    assert_eq!(decision, Decision::GiveUp(GiveUp::NoRestarts));
}

#[test]
fn delays_grow_to_the_longest_and_start_again_after_a_quiet_time() {
    let mut state = RestartState::new(RestartSettings::EXPONENTIAL_DELAY);
    let mut now = Duration::ZERO;
    let mut delays = Vec::new();
    for _ in 0..12 {
        let Decision::Restart { after } = state.failed(now, 0.5) else { unreachable!("it never gives up") };
        delays.push(after.as_millis());
        now += after;
    }
    assert_eq!(delays, [1000, 1500, 2250, 3375, 5062, 7593, 11390, 17085, 25628, 38443, 57665, 60000]);
    let quiet = Duration::from_secs(3600);
    assert_eq!(state.clone().failed(now + quiet - ms(1), 0.5), Decision::Restart { after: ms(60_000) });
    assert_eq!(state.failed(now + quiet, 0.5), Decision::Restart { after: ms(1000) });
}

proptest! {
    /// With a fixed delay there are as many restarts as allowed, whenever the failures are.
    #[test]
    fn a_fixed_number_of_restarts(attempts in 0u32..50, delay in 0u64..100, failures in failures(100)) {
        let delay = ms(delay);
        let mut state = RestartState::new(RestartSettings::FixedDelay { attempts, delay });
        for (index, (now, random)) in (0..).zip(failures) {
            let expected = if index < attempts {
                Decision::Restart { after: delay }
            } else {
                Decision::GiveUp(GiveUp::AttemptsUsed { attempts })
            };
            prop_assert_eq!(state.failed(now, random), expected);
        }
    }

    /// A failure rate gives up at the first failure that is one too many in the interval that ends with it.
    #[test]
    fn a_rate_of_failures(max_failures in 1u32..6, interval in 1u64..300, delay in 0u64..100, failures in failures(100)) {
        let (interval, delay) = (ms(interval), ms(delay));
        let mut state = RestartState::new(RestartSettings::FailureRate { max_failures, interval, delay });
        for (index, (now, random)) in failures.iter().enumerate() {
            let within = failures[..=index].iter().filter(|(at, _)| *now - *at <= interval).count();
            let is_too_often = within > max_failures as usize;
            let expected = if is_too_often {
                Decision::GiveUp(GiveUp::TooOften { failures: within, interval })
            } else {
                Decision::Restart { after: delay }
            };
            prop_assert_eq!(state.failed(*now, *random), expected);
            prop_assert!(state.recent.len() <= max_failures as usize + 1);
            if is_too_often {
                break;
            }
        }
    }

    /// A delay is as long as the one the failures since the last quiet time give, give or take the jitter, and never
    /// outside its bounds, however many failures there are.
    #[test]
    fn a_growing_delay(
        initial in 0u64..50,
        spread in 0u64..1000,
        multiplier in 1.1f64..100.0,
        jitter in 0.0f64..=1.0,
        reset_after in 1u64..2000,
        failures in failures(3000),
        earlier in prop_oneof![Just(0u32), Just(u32::MAX)],
    ) {
        let (initial, max) = (ms(initial), ms(initial + spread));
        let settings =
            RestartSettings::ExponentialDelay { initial, max, multiplier, reset_after: ms(reset_after), jitter };
        let mut state = RestartState::new(settings);
        state.restarts = earlier;
        let mut expected = if earlier == 0 || initial.is_zero() { initial } else { max }.as_secs_f64();
        let mut quiet_from = None;
        for (now, random) in failures {
            if quiet_from.is_some_and(|from| now >= from + ms(reset_after)) {
                expected = initial.as_secs_f64();
            }
            let Decision::Restart { after } = state.failed(now, random) else { unreachable!("it never gives up") };
            prop_assert!((initial..=max).contains(&after));
            let off = (after.as_secs_f64() - expected).abs();
            prop_assert!(off <= expected * jitter + 1e-6, "{:?} is far from {}", after, expected);
            quiet_from = Some(now + after);
            expected = (expected * multiplier).min(max.as_secs_f64());
        }
    }
}
