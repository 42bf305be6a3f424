//! Reading tracefs `format` files: where a field lies in a record. Pure.

use std::collections::HashMap;

/// A tracepoint's layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Format {
    /// Its number, which `perf_event_open` takes and each record begins with.
    pub id: u16,
    fields: HashMap<String, Field>,
}

/// Where a field lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Field {
    offset: usize,
    size: usize,
}

impl Format {
    /// Reads a `format` file; the error says what is missing.
    pub fn parse(text: &str) -> Result<Self, String> {
        let id = text.lines().find_map(|line| line.strip_prefix("ID:")).ok_or("no ID")?;
        let id = id.trim().parse().map_err(|e| format!("ID `{}`: {e}", id.trim()))?;
        let fields = text.lines().filter_map(|line| field(line.trim())).collect();
        Ok(Self { id, fields })
    }

    /// Checks that these fields are there with these sizes.
    pub fn require(&self, wanted: &[(&str, usize)]) -> Result<(), String> {
        match wanted.iter().find(|(name, size)| self.fields.get(*name).is_none_or(|field| field.size != *size)) {
            Some((name, size)) => Err(format!("no field `{name}` of {size} bytes")),
            None => Ok(()),
        }
    }

    /// The bytes of a field in a record.
    pub fn bytes<'a>(&self, record: &'a [u8], name: &str) -> Option<&'a [u8]> {
        let field = self.fields.get(name)?;
        record.get(field.offset..field.offset + field.size)
    }

    /// A field of two bytes in the machine's order.
    pub fn u16(&self, record: &[u8], name: &str) -> Option<u16> {
        Some(u16::from_ne_bytes(self.bytes(record, name)?.try_into().ok()?))
    }

    /// A field of four bytes in the machine's order, signed.
    pub fn i32(&self, record: &[u8], name: &str) -> Option<i32> {
        Some(i32::from_ne_bytes(self.bytes(record, name)?.try_into().ok()?))
    }
}

/// A line such as `field:__u8 saddr[4]; offset:32; size:4; signed:0;`, with tabs between the parts.
fn field(line: &str) -> Option<(String, Field)> {
    let mut parts = line.strip_prefix("field:")?.split(';').map(str::trim);
    let declaration = parts.next()?;
    let name = declaration.split(' ').next_back()?.split('[').next()?.trim_start_matches('*');
    let mut number = |prefix: &str| parts.next()?.strip_prefix(prefix)?.parse().ok();
    let (offset, size) = (number("offset:")?, number("size:")?);
    Some((name.to_string(), Field { offset, size }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ERROR_REPORT: &str = "name: inet_sk_error_report
ID: 2286
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;

	field:int error;	offset:8;	size:4;	signed:1;
	field:__u16 sport;	offset:12;	size:2;	signed:0;
	field:__u8 saddr[4];	offset:20;	size:4;	signed:0;
	field:const void * skaddr;	offset:24;	size:8;	signed:0;

print fmt: \"error=%d\", REC->error
";

    #[test]
    fn fields_are_found_where_the_file_says() {
        let format = Format::parse(ERROR_REPORT).expect("a format");
        assert_eq!(format.id, 2286);
        let mut record = [0u8; 32];
        record[8..12].copy_from_slice(&110i32.to_ne_bytes());
        record[12..14].copy_from_slice(&40000u16.to_ne_bytes());
        record[20..24].copy_from_slice(&[10, 64, 128, 1]);
        assert_eq!(format.i32(&record, "error"), Some(110));
        assert_eq!(format.u16(&record, "sport"), Some(40000));
        assert_eq!(format.bytes(&record, "saddr"), Some(&[10, 64, 128, 1][..]));
        assert_eq!(format.bytes(&record, "skaddr").map(<[u8]>::len), Some(8));
        assert_eq!(format.i32(&record[..10], "error"), None);
        assert_eq!(format.i32(&record, "nothing"), None);
    }

    #[test]
    fn a_layout_that_lacks_a_field_is_refused() {
        let format = Format::parse(ERROR_REPORT).expect("a format");
        assert_eq!(format.require(&[("error", 4), ("saddr", 4)]), Ok(()));
        assert_eq!(format.require(&[("saddr", 16)]), Err("no field `saddr` of 16 bytes".to_string()));
        assert_eq!(format.require(&[("daddr", 4)]), Err("no field `daddr` of 4 bytes".to_string()));
        assert_eq!(Format::parse("name: x"), Err("no ID".to_string()));
    }
}
