#pragma once

#include <type_traits>

/// Helpers of tests that compare millrace's declarations of a library's functions with its header.
namespace millrace::gpu {

/// An argument as it is passed in a call: enumerations are ints, handles are pointers.
template <typename T>
using Passed = std::conditional_t<
    std::is_enum_v<T>, int,
    std::conditional_t<std::is_pointer_v<T> &&
                           !std::is_same_v<std::remove_const_t<std::remove_pointer_t<T>>, char>,
                       const void*, std::remove_const_t<T>>>;

/// True if pointers to these two functions are interchangeable.
template <typename Ours, typename Theirs>
inline constexpr bool kAlike = false;
template <typename R, typename... A, typename S, typename... B>
inline constexpr bool kAlike<R (*)(A...), S (*)(B...)> =
    sizeof...(A) == sizeof...(B) &&
    std::is_same_v<Passed<R>, Passed<S>>&& std::is_same_v<void(Passed<A>...), void(Passed<B>...)>;

}  // namespace millrace::gpu
