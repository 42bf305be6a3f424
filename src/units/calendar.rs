//! Instants as people write them. Pure.

/// Seconds since 1970 as `2026-11-30 12:29:00 UTC`, by the proleptic Gregorian calendar (days-to-civil algorithm of
/// H. Hinnant, 2013).
#[must_use]
pub fn utc_date_time(unix_s: i64) -> String {
    let (days, second) = (unix_s.div_euclid(86_400), unix_s.rem_euclid(86_400));
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC", second / 3600, second / 60 % 60, second % 60)
}

/// Nanoseconds since 1970 as `2026-11-30T12:29:00.123456+00:00` (ISO 8601, microseconds).
#[must_use]
pub fn iso_8601(unix_ns: i64) -> String {
    let text = utc_date_time(unix_ns.div_euclid(1_000_000_000));
    let micros = unix_ns.rem_euclid(1_000_000_000) / 1_000;
    // The text is ASCII of a known shape: date, blank, time, blank, zone.
    let (date, rest) = text.split_once(' ').unwrap_or((&text, ""));
    format!("{date}T{}.{micros:06}+00:00", rest.trim_end_matches(" UTC"))
}

/// Microseconds since 1970 of an instant as databases and logs print it: `2025-03-01 03:52:21.5+00:00`, with `T` or a blank
/// in the middle, any number of decimals (six count), and a zone of `Z`, `+hh`, `+hhmm` or `+hh:mm`; without one it is
/// UTC. `None` for anything else.
#[must_use]
pub fn parse_instant(text: &str) -> Option<i64> {
    let text = text.trim().trim_end_matches(" UTC");
    let (date, rest) = text.split_once(['T', ' '])?;
    let digits = |t: &str, width: usize| -> Option<i64> {
        (t.len() == width && t.bytes().all(|b| b.is_ascii_digit())).then(|| t.parse().ok()).flatten()
    };
    let mut parts = date.splitn(3, '-');
    let (year, month, day) = (digits(parts.next()?, 4)?, digits(parts.next()?, 2)?, digits(parts.next()?, 2)?);
    let (clock, zone) = match rest.find(['Z', '+', '-']) {
        Some(at) => rest.split_at(at),
        None => (rest, "Z"),
    };
    let mut parts = clock.trim_end().splitn(3, ':');
    let (hour, minute, second) = (digits(parts.next()?, 2)?, digits(parts.next()?, 2)?, parts.next()?);
    let (second, fraction) = second.split_once('.').unwrap_or((second, "0"));
    let second = digits(second, 2)?;
    let fraction = format!("{fraction:0<6}");
    let micros = digits(fraction.get(..6)?, 6)?;
    let offset_minutes = match zone.split_at_checked(1)? {
        ("Z", "") => 0,
        (sign, offset) => {
            let plain = offset.replacen(':', "", 1);
            let plain = if plain.len() == 2 { format!("{plain}00") } else { plain };
            let minutes = digits(plain.get(..2)?, 2)? * 60 + digits(plain.get(2..)?, 2)?;
            if sign == "-" { -minutes } else { minutes }
        }
    };
    let ranges = (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60 && second <= 60;
    if !ranges {
        return None;
    }
    // Civil-to-days, the inverse of the above, by the same author.
    let shifted_year = if month <= 2 { year - 1 } else { year };
    let era = shifted_year.div_euclid(400);
    let year_of_era = shifted_year.rem_euclid(400);
    let day_of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    let days = era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468;
    Some(((days * 1440 + hour * 60 + minute - offset_minutes) * 60 + second) * 1_000_000 + micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_the_calendar() {
        assert_eq!(utc_date_time(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc_date_time(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc_date_time(1_796_041_740), "2026-11-30 12:29:00 UTC");
        assert_eq!(utc_date_time(-1), "1969-12-31 23:59:59 UTC");
    }

    #[test]
    fn an_instant_has_microseconds_and_its_zone() {
        assert_eq!(iso_8601(1_735_689_600_123_456_789), "2025-01-01T00:00:00.123456+00:00");
        assert_eq!(iso_8601(-1), "1969-12-31T23:59:59.999999+00:00");
    }

    #[test]
    fn an_instant_is_read_back_whatever_its_spelling() {
        for unix_ns in [0_i64, 951_782_400_123_456_000, 1_796_041_740_500_000_000, -1_000_000_000] {
            assert_eq!(parse_instant(&iso_8601(unix_ns)), Some(unix_ns / 1000));
        }
        let base = parse_instant("2025-03-01 03:52:21").unwrap();
        for (text, micros) in [
            ("2025-03-01T03:52:21.5Z", 500_000),
            ("2025-03-01 04:52:21.5+01", 500_000),
            ("2025-03-01 03:22:21-0030", 0),
            ("2025-03-01 03:52:21.123456789+00:00", 123_456),
            ("2025-03-01 03:52:21 UTC", 0),
        ] {
            assert_eq!(parse_instant(text), Some(base + micros), "{text}");
        }
        for text in
            ["", "2025-03-01", "2025-13-01 00:00:00", "1 2:3:4", "2025-03-01 03:52:21+", "x", "2025-03-01 aa:00:00"]
        {
            assert_eq!(parse_instant(text), None, "{text}");
        }
    }
}
