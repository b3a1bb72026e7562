//! Indices in brackets, as Python writes slices: `host[0:2]`, `xpu[:]`, `nic[-1]`, `port[::2]`; without brackets all.

/// A name and the indices behind it, of `count` that exist.
///
/// # Errors
/// With the reason.
pub(super) fn split(text: &str, count: u32) -> Result<(&str, Vec<u32>), String> {
    let name = name_of(text);
    let Some(rest) = text[name.len()..].strip_prefix('[') else { return Ok((name, (0..count).collect())) };
    let inside = rest.strip_suffix(']').ok_or("has no closing bracket at its end")?;
    let parts: Vec<&str> = inside.split(':').map(str::trim).collect();
    let number = |part: &str| -> Result<Option<i64>, String> {
        if part.is_empty() {
            return Ok(None);
        }
        part.parse().map(Some).map_err(|_| format!("has `{part}` where a whole number belongs"))
    };
    let all = i64::from(count);
    if parts.len() > 3 {
        return Err("has more than two colons".into());
    }
    if parts.len() == 1
        && let Some(index) = number(parts[0])?
    {
        let place = if index < 0 { index.saturating_add(all) } else { index };
        if !(0..all).contains(&place) {
            return Err(format!("has index {index}, and there are {count}"));
        }
        return Ok((name, vec![place as u32]));
    }
    let step = parts.get(2).map_or(Ok(None), |part| number(part))?.unwrap_or(1);
    if step == 0 {
        return Err("has a step of 0".into());
    }
    // The bounds of Python's slices: cut off at the ends, and counted from the end if negative.
    let bound = |value: Option<i64>, missing: i64, low: i64, high: i64| {
        value.map_or(missing, |value| if value < 0 { value.saturating_add(all) } else { value }.clamp(low, high))
    };
    let (start, stop) = (number(parts[0])?, parts.get(1).map_or(Ok(None), |part| number(part))?);
    let mut indices = Vec::new();
    if step > 0 {
        let (mut at, end) = (bound(start, 0, 0, all), bound(stop, all, 0, all));
        while at < end {
            indices.push(at as u32);
            at = at.saturating_add(step);
        }
    } else {
        let (mut at, end) = (bound(start, all - 1, -1, all - 1), bound(stop, -1, -1, all - 1));
        while at > end {
            indices.push(at as u32);
            at = at.saturating_add(step);
        }
    }
    Ok((name, indices))
}

/// The name before the brackets.
pub(super) fn name_of(text: &str) -> &str {
    text.split('[').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_those_of_python() {
        for (text, wanted) in [
            ("a", vec![0, 1, 2, 3, 4]),
            ("a[]", vec![0, 1, 2, 3, 4]),
            ("a[3]", vec![3]),
            ("a[-1]", vec![4]),
            ("a[1:3]", vec![1, 2]),
            ("a[:-1]", vec![0, 1, 2, 3]),
            ("a[3:]", vec![3, 4]),
            ("a[::2]", vec![0, 2, 4]),
            ("a[4:0:-2]", vec![4, 2]),
            ("a[::-1]", vec![4, 3, 2, 1, 0]),
            ("a[2:99]", vec![2, 3, 4]),
            ("a[7:9]", vec![]),
        ] {
            assert_eq!(split(text, 5), Ok(("a", wanted)), "{text}");
        }
        for (text, wanted) in [
            ("a[5]", "has index 5, and there are 5"),
            ("a[-6]", "has index -6"),
            ("a[x]", "has `x` where a whole number belongs"),
            ("a[0:1:2:3]", "more than two colons"),
            ("a[::0]", "a step of 0"),
            ("a[0", "no closing bracket"),
            ("a[0]b", "no closing bracket"),
            ("a[9223372036854775808]", "where a whole number belongs"),
        ] {
            assert!(split(text, 5).expect_err(text).contains(wanted), "{text}");
        }
        assert_eq!(split("a[9223372036854775807:]", 5), Ok(("a", vec![])));
        assert_eq!(split("a[::9223372036854775807]", 5), Ok(("a", vec![0])));
    }
}
