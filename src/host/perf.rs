//! Tracepoint records of the whole machine through `perf_event_open`, one ring buffer for each CPU.
//!
//! Everything is owned by descriptors: nothing is written to tracefs and nothing survives the process. What is left
//! out: what the records mean, and where tracepoint numbers come from.

use perf_event_open_sys::bindings::{
    PERF_FLAG_FD_CLOEXEC, PERF_RECORD_LOST, PERF_RECORD_SAMPLE, PERF_SAMPLE_RAW, PERF_SAMPLE_TIME,
    PERF_TYPE_TRACEPOINT, perf_event_attr, perf_event_mmap_page,
};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Data pages of each ring, a power of two: 1 MiB holds some 10,000 records, which is more than a thousand connections make
/// when all of them open or end while nobody drains.
const DATA_PAGES: usize = 256;
const RECORD_HEADER_LEN: usize = 8;

/// One CPU's ring buffer with the tracepoints that write to it.
#[derive(Debug)]
pub struct PerfRing {
    /// The first one owns the ring, the others are redirected to it.
    events: Vec<OwnedFd>,
    page: NonNull<perf_event_mmap_page>,
    mapped: usize,
    data_offset: usize,
    data_size: usize,
    record: Vec<u8>,
    /// Records read so far, and records that the kernel said it had no room for.
    read: u64,
    overrun: u64,
    /// What the events had counted when they were drained last.
    counted: u64,
    /// Counted by then, and still without a record now.
    unrecorded: u64,
}

// SAFETY: the mapping belongs to this value alone, and is not tied to the thread that made it.
unsafe impl Send for PerfRing {}

impl PerfRing {
    /// Starts recording these tracepoints on one CPU: their numbers, each with the filter (in the kernel's own words) that
    /// its events must pass to be counted and recorded.
    ///
    /// # Errors
    /// `EACCES` or `EPERM` without `CAP_PERFMON` over the machine, `ENODEV` where the CPU is offline, `ENOSYS` or
    /// `ENOENT` where the kernel has no perf events, `EINVAL` for a filter on a field that is not there.
    pub fn open(cpu: i32, tracepoints: &[(u16, Option<&CStr>)]) -> io::Result<Self> {
        let mut events: Vec<OwnedFd> = Vec::with_capacity(tracepoints.len());
        for (id, filter) in tracepoints {
            let event = open_event(cpu, *id)?;
            if let Some(filter) = filter {
                let text = filter.as_ptr().cast_mut();
                // SAFETY: an open event that is still disabled; the kernel only reads the text, which ends with a NUL.
                if unsafe { perf_event_open_sys::ioctls::SET_FILTER(event.as_raw_fd(), text) } != 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            events.push(event);
        }
        let first = events.first().ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: sysconf only reads.
        let page_size = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).map_err(io::Error::other)?;
        let mapped = page_size * (DATA_PAGES + 1);
        // SAFETY: a fresh shared mapping of a descriptor that is open; the kernel checks the length.
        let page = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), mapped, protection, libc::MAP_SHARED, first.as_raw_fd(), 0)
        };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let page = NonNull::new(page.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let ring = Self {
            events,
            page,
            mapped,
            data_offset: page_size,
            data_size: page_size * DATA_PAGES,
            record: Vec::new(),
            read: 0,
            overrun: 0,
            counted: 0,
            unrecorded: 0,
        };
        let output = ring.events[0].as_raw_fd();
        for event in &ring.events {
            // SAFETY: both descriptors are open perf events of the same CPU.
            let redirected = event.as_raw_fd() == output
                || unsafe { perf_event_open_sys::ioctls::SET_OUTPUT(event.as_raw_fd(), output) } == 0;
            // SAFETY: as above; 0 enables this event alone.
            if !redirected || unsafe { perf_event_open_sys::ioctls::ENABLE(event.as_raw_fd(), 0) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(ring)
    }

    /// Hands each new record to `each`, in the order of this CPU: `CLOCK_MONOTONIC` in nanoseconds, and the
    /// tracepoint's own bytes, which begin with its number. Returns how many records were lost since the last call.
    pub fn drain(&mut self, mut each: impl FnMut(i64, &[u8])) -> u64 {
        let counted = self.count();
        let mut lost = 0;
        let head = self.head().load(Ordering::Acquire);
        let mut tail = self.tail().load(Ordering::Relaxed);
        while tail < head {
            let mut header = [0; RECORD_HEADER_LEN];
            self.copy(tail, &mut header);
            let kind = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
            let size = usize::from(u16::from_ne_bytes([header[6], header[7]]));
            if size < RECORD_HEADER_LEN {
                // Never written by the kernel; skipping to the end beats looping on it.
                tail = head;
                break;
            }
            let mut record = std::mem::take(&mut self.record);
            record.resize(size - RECORD_HEADER_LEN, 0);
            self.copy(tail + RECORD_HEADER_LEN as u64, &mut record);
            match kind {
                PERF_RECORD_SAMPLE => {
                    self.read += 1;
                    if let Some((time, raw)) = sample(&record) {
                        each(time, raw);
                    }
                }
                PERF_RECORD_LOST => lost += u64_at(&record, 8).unwrap_or(0),
                _ => {}
            }
            self.record = record;
            tail += size as u64;
        }
        self.tail().store(tail, Ordering::Release);
        self.overrun += lost;
        // A record follows its count at once: what had been counted at the drain before this one has been read by now.
        self.unrecorded = self.counted.saturating_sub(self.read + self.overrun);
        self.counted = counted;
        lost
    }

    /// Events that the kernel counted and never recorded, without a word: Linux 6.18 was seen to do so for what a timer does
    /// on an idle CPU. Known one drain late.
    #[must_use]
    pub fn unrecorded(&self) -> u64 {
        self.unrecorded
    }

    /// What all events have counted; one that can't be read counts as nothing.
    fn count(&self) -> u64 {
        let of = |event: &OwnedFd| {
            let mut bytes = [0; 8];
            nix::unistd::read(event, &mut bytes).is_ok_and(|n| n == bytes.len()).then(|| u64::from_ne_bytes(bytes))
        };
        self.events.iter().filter_map(of).sum()
    }

    fn head(&self) -> &AtomicU64 {
        // SAFETY: the page is mapped as long as `self` lives, and the kernel writes the field as one aligned word.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.page.as_ptr()).data_head) }
    }

    fn tail(&self) -> &AtomicU64 {
        // SAFETY: as above; user space is the only writer of this field.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.page.as_ptr()).data_tail) }
    }

    /// Copies from a position of the endless stream; the ring wraps.
    fn copy(&self, position: u64, into: &mut [u8]) {
        // The remainder is below the size of the ring.
        let start = (position % self.data_size as u64) as usize;
        let first = into.len().min(self.data_size - start);
        // SAFETY: both parts lie within the data area of the mapping, which the kernel doesn't write between tail and
        // head, and `into` is memory of its own.
        unsafe {
            let data = self.page.as_ptr().cast::<u8>().add(self.data_offset);
            std::ptr::copy_nonoverlapping(data.add(start), into.as_mut_ptr(), first);
            std::ptr::copy_nonoverlapping(data, into.as_mut_ptr().add(first), into.len() - first);
        }
    }
}

impl Drop for PerfRing {
    fn drop(&mut self) {
        // SAFETY: mapped by `open` with this length, and nothing borrows from it any more.
        unsafe { libc::munmap(self.page.as_ptr().cast(), self.mapped) };
    }
}

impl AsFd for PerfRing {
    /// Readable when there are records.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events[0].as_fd()
    }
}

/// How many CPUs there may be; some can be offline.
#[must_use]
pub fn cpus() -> i32 {
    // SAFETY: sysconf only reads.
    i32::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) }).unwrap_or(1).max(1)
}

fn open_event(cpu: i32, tracepoint: u16) -> io::Result<OwnedFd> {
    let mut attributes = perf_event_attr {
        type_: PERF_TYPE_TRACEPOINT,
        size: size_of::<perf_event_attr>() as u32,
        config: u64::from(tracepoint),
        sample_type: u64::from(PERF_SAMPLE_TIME | PERF_SAMPLE_RAW),
        clockid: libc::CLOCK_MONOTONIC,
        ..perf_event_attr::default()
    };
    attributes.__bindgen_anon_1.sample_period = 1;
    attributes.__bindgen_anon_2.wakeup_events = 1;
    attributes.set_disabled(1);
    attributes.set_use_clockid(1);
    // SAFETY: the attributes are initialised, and an event for all processes of one CPU takes no other pointers.
    let fd =
        unsafe { perf_event_open_sys::perf_event_open(&raw mut attributes, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC.into()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just opened and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `PERF_SAMPLE_TIME | PERF_SAMPLE_RAW`: the time, the length of the raw part, the raw part.
fn sample(record: &[u8]) -> Option<(i64, &[u8])> {
    let time = i64::try_from(u64_at(record, 0)?).ok()?;
    let length = u32::from_ne_bytes(record.get(8..12)?.try_into().ok()?);
    Some((time, record.get(12..12 + usize::try_from(length).ok()?)?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}
