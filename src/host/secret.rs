//! Passwords for one run.
//!
//! Not drawn from the run's seed: a seed is printed in reports, and whoever reads one must not know the password.

use std::io;

/// 128 random bits as 32 hexadecimal digits.
///
/// # Errors
/// When the kernel has no randomness to give.
pub fn password() -> io::Result<String> {
    let mut bytes = [0u8; 16];
    // SAFETY: the kernel writes at most the given length into the buffer.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if usize::try_from(got) != Ok(bytes.len()) {
        return Err(io::Error::last_os_error());
    }
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
}

#[cfg(test)]
mod tests {
    #[test]
    fn two_passwords_differ() {
        let (a, b) = (super::password().unwrap(), super::password().unwrap());
        assert_eq!((a.len(), b.len()), (32, 32));
        assert_ne!(a, b);
    }
}
