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
}
