#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 warns about its own header, where values are undefined on purpose.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#include <algorithm>
#include <cstring>

#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/cpu/cpu_isa.h"
#include "kernels/cpu/tile_pack.h"
#include "kernels/cpu/tile_product.h"

namespace millrace::kernels::tiles {
namespace {

// Number of terms packed at a time, and bytes of the held factor, which stays in the L2 cache.
constexpr int64_t kMostTerms = 768;
constexpr int64_t kHeldBytes = int64_t{1300} << 10;

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// During its lifetime the calling thread has eight tiles of full size configured.
class TilesInUse {
 public:
  [[MILLRACE_TILES]] TilesInUse() {
    const TileConfig config;
    _tile_loadconfig(&config);
  }
  TilesInUse(const TilesInUse&) = delete;
  TilesInUse& operator=(const TilesInUse&) = delete;
  [[MILLRACE_TILES]] ~TilesInUse() { _tile_release(); }
};

// Tiles 0 to 3 are sums, 4 and 5 are two of a, 6 and 7 two of b. Products of parts too small to
// affect a float result (1 x 2, 2 x 1, 2 x 2) are left out. The smaller products come first, in an
// order in which one factor stays loaded.
#define MILLRACE_LOAD_A(part)                \
  _tile_loadd(4, a + (part)*kPartBytes, 64); \
  _tile_loadd(5, a + (part)*kPartBytes + 1024, 64)
#define MILLRACE_LOAD_B(part)                \
  _tile_loadd(6, b + (part)*kPartBytes, 64); \
  _tile_loadd(7, b + (part)*kPartBytes + 1024, 64)
#define MILLRACE_MULTIPLY() \
  _tile_dpbf16ps(0, 4, 6);  \
  _tile_dpbf16ps(1, 4, 7);  \
  _tile_dpbf16ps(2, 5, 6);  \
  _tile_dpbf16ps(3, 5, 7)

// sums [kBlock, kBlock] = a x b, or += it.
[[MILLRACE_TILES]] void multiply_block(const std::byte* a, const std::byte* b, int64_t steps,
                                       bool add, float* sums, int64_t stride) {
  const int64_t bytes = stride * static_cast<int64_t>(sizeof(float));
  float* const below = sums + kSide * stride;
  if (add) {
    _tile_loadd(0, sums, bytes);
    _tile_loadd(1, sums + kSide, bytes);
    _tile_loadd(2, below, bytes);
    _tile_loadd(3, below + kSide, bytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t i = 0; i < steps; ++i, a += kStepBytes, b += kStepBytes) {
    MILLRACE_LOAD_A(2);
    MILLRACE_LOAD_B(0);
    MILLRACE_MULTIPLY();
    MILLRACE_LOAD_A(1);
    MILLRACE_MULTIPLY();
    MILLRACE_LOAD_B(1);
    MILLRACE_MULTIPLY();
    MILLRACE_LOAD_A(0);
    MILLRACE_MULTIPLY();
    MILLRACE_LOAD_B(2);
    MILLRACE_MULTIPLY();
    MILLRACE_LOAD_B(0);
    MILLRACE_MULTIPLY();
  }
  _tile_stored(0, sums, bytes);
  _tile_stored(1, sums + kSide, bytes);
  _tile_stored(2, below, bytes);
  _tile_stored(3, below + kSide, bytes);
}

#undef MILLRACE_LOAD_A
#undef MILLRACE_LOAD_B
#undef MILLRACE_MULTIPLY

// Position of a block in the result, and the range of terms to sum.
struct Place {
  int64_t row;
  int64_t rows;
  int64_t column;
  int64_t columns;
  int64_t term;
  int64_t terms;
};

// True if parts cannot represent the numbers. Next to numbers that are not large, the loss of tiny
// ones is below 2^-116.
bool is_odd(const Extremes& a, const Extremes& b) {
  return a.beyond || b.beyond || (a.tiny && b.large) || (b.tiny && a.large);
}

// The product in float, for numbers that is_odd() reports.
void multiply_odd_block(const Shape& s, const Operands& o, const Place& p, bool add, float* sums,
                        int64_t stride) {
  for (int64_t r = 0; r < p.rows; ++r) {
    float* const row = sums + r * stride;
    if (!add) std::fill_n(row, p.columns, 0.0F);
    for (int64_t k = p.term; k < p.term + p.terms; ++k) {
      const float x =
          s.a_transposed ? o.a[k * s.a_stride + p.row + r] : o.a[(p.row + r) * s.a_stride + k];
      const float* const y =
          s.b_transposed ? o.b + p.column * s.b_stride + k : o.b + k * s.b_stride + p.column;
      const int64_t step = s.b_transposed ? s.b_stride : 1;
      for (int64_t j = 0; j < p.columns; ++j) row[j] += x * y[j * step];
    }
  }
}

// Applies alpha, bias, summand and rectifier: sums [kBlock, kBlock] -> c.
[[MILLRACE_TILES]] void finish_block(const Shape& s, const Operands& o, const Place& p,
                                     bool add_old, const float* sums, int64_t stride) {
  const __m512 alpha = _mm512_set1_ps(s.alpha);
  for (int64_t at = 0; at < p.columns; at += kSide) {
    const __mmask16 lanes = first_lanes(p.columns - at);
    const __m512 bias = o.bias == nullptr ? _mm512_setzero_ps()
                                          : _mm512_maskz_loadu_ps(lanes, o.bias + p.column + at);
    for (int64_t r = 0; r < p.rows; ++r) {
      const int64_t offset = (p.row + r) * s.c_stride + p.column + at;
      __m512 x = _mm512_maskz_loadu_ps(lanes, sums + r * stride + at);
      x = _mm512_fmadd_ps(x, alpha, bias);
      if (add_old) x = _mm512_add_ps(x, _mm512_maskz_loadu_ps(lanes, o.c + offset));
      if (o.summand != nullptr)
        x = _mm512_add_ps(x, _mm512_maskz_loadu_ps(lanes, o.summand + offset));
      if (s.rectify) x = _mm512_max_ps(x, _mm512_setzero_ps());
      _mm512_mask_storeu_ps(o.c + offset, lanes, x);
    }
  }
}

// The part of the result that one thread computes.
struct Region {
  int64_t row;
  int64_t rows;
  int64_t column;
  int64_t columns;
};

// How one thread computes a region. One factor is packed and held, as much of it as fits the L2
// cache; blocks of the other factor are packed one by one, and each is multiplied with all that is
// held. The shorter factor is held, so that packed data is used soon.
struct Plan {
  bool holds_a;
  int64_t held_lines;  ///< rows of a, or columns of b
  int64_t passing_lines;
  int64_t terms;  ///< packed at a time
  int64_t lines;  ///< held at a time

  Plan(const Shape& s, int64_t rows, int64_t columns)
      : holds_a(rows < columns),
        held_lines(std::min(rows, columns)),
        passing_lines(std::max(rows, columns)) {
    const int64_t chunks = blocks_of(s.inner, kMostTerms);
    terms = blocks_of(blocks_of(s.inner, chunks), kTerms) * kTerms;
    const int64_t most = std::max(kBlock, kHeldBytes / block_bytes() * kBlock);
    const int64_t strips = blocks_of(held_lines, most);
    lines = blocks_of(blocks_of(held_lines, strips), kBlock) * kBlock;
  }

  [[nodiscard]] int64_t block_bytes() const { return terms / kTerms * kStepBytes; }
  [[nodiscard]] int64_t held_bytes() const { return lines / kBlock * block_bytes(); }
  [[nodiscard]] int64_t bytes() const {
    const auto notes = static_cast<int64_t>(sizeof(Extremes)) * (lines / kBlock);
    return blocks_of(held_bytes() + block_bytes() + notes, 64) * 64;
  }
};

// The held lines and the range of packed terms.
struct Strip {
  const Shape& shape;
  const Operands& operands;
  const Region& region;
  const Plan& plan;
  int64_t line;
  int64_t lines;
  int64_t term;
  int64_t terms;
  const std::byte* held;
  const Extremes* held_extremes;

  void multiply(int64_t passing_line, const std::byte* passing, const Extremes& extremes) const;
};

// Multiplies one passing block with all that is held.
void Strip::multiply(int64_t passing_line, const std::byte* passing,
                     const Extremes& extremes) const {
  const Shape& s = shape;
  const bool is_first = term == 0;
  const bool is_last = term + terms == s.inner;
  const bool plain =
      s.alpha == 1.0F && operands.bias == nullptr && operands.summand == nullptr && !s.rectify;
  // With an alpha, the old content of c is added at the end.
  const bool adds_late = s.accumulate && s.alpha != 1.0F;
  const bool add = !is_first || (s.accumulate && !adds_late);
  alignas(64) float sums[kBlock * kBlock];
  for (int64_t j = 0; j * kBlock < lines; ++j) {
    const int64_t held_line = line + j * kBlock;
    const int64_t below = plan.holds_a ? held_line : passing_line;
    const int64_t beside = plan.holds_a ? passing_line : held_line;
    const int64_t row = region.row + below;
    const int64_t column = region.column + beside;
    const Place p{row,    std::min(kBlock, region.rows - below),
                  column, std::min(kBlock, region.columns - beside),
                  term,   terms};
    float* const c = operands.c + row * s.c_stride + column;
    const bool in_place = p.rows == kBlock && p.columns == kBlock && (plain || !is_last);
    float* const to = in_place ? c : sums;
    const int64_t stride = in_place ? s.c_stride : kBlock;
    if (add && !in_place) {
      for (int64_t r = 0; r < p.rows; ++r)
        std::memcpy(sums + r * kBlock, c + r * s.c_stride,
                    static_cast<size_t>(p.columns) * sizeof(float));
    }
    if (is_odd(extremes, held_extremes[j])) {
      multiply_odd_block(s, operands, p, add, to, stride);
    } else {
      const std::byte* const other = held + j * plan.block_bytes();
      multiply_block(plan.holds_a ? other : passing, plan.holds_a ? passing : other,
                     blocks_of(terms, kTerms), add, to, stride);
    }
    if (in_place) continue;
    if (is_last) {
      finish_block(s, operands, p, adds_late, sums, kBlock);
    } else {
      for (int64_t r = 0; r < p.rows; ++r)
        std::memcpy(c + r * s.c_stride, sums + r * kBlock,
                    static_cast<size_t>(p.columns) * sizeof(float));
    }
  }
}

void multiply_region(const Shape& s, const Operands& o, const Region& region, const Plan& plan,
                     std::byte* memory) {
  std::byte* const held = memory;
  std::byte* const passing = held + plan.held_bytes();
  auto* const extremes = reinterpret_cast<Extremes*>(passing + plan.block_bytes());
  const float* const first_row = o.a + region.row * (s.a_transposed ? 1 : s.a_stride);
  const float* const first_column = o.b + region.column * (s.b_transposed ? s.b_stride : 1);
  const Factor a{first_row, s.a_stride, !s.a_transposed, true};
  const Factor b{first_column, s.b_stride, s.b_transposed, false};
  const TilesInUse tiles;
  for (int64_t line = 0; line < plan.held_lines; line += plan.lines) {
    const int64_t lines = std::min(plan.lines, plan.held_lines - line);
    for (int64_t term = 0; term < s.inner; term += plan.terms) {
      const int64_t terms = std::min(plan.terms, s.inner - term);
      for (int64_t at = 0; at < lines; at += kBlock) {
        extremes[at / kBlock] = pack(plan.holds_a ? a : b, line + at, lines - at, term, terms,
                                     held + at / kBlock * plan.block_bytes());
      }
      const Strip strip{s, o, region, plan, line, lines, term, terms, held, extremes};
      for (int64_t at = 0; at < plan.passing_lines; at += kBlock) {
        const Extremes own =
            pack(plan.holds_a ? b : a, at, plan.passing_lines - at, term, terms, passing);
        strip.multiply(at, passing, own);
      }
    }
  }
}

// Regions of about equal size, one for each thread that is worth using. Threads share no packed
// data: packing twice takes less time than fetching it from the cache of another core.
struct Grid {
  int64_t down = 1;
  int64_t across = 1;
  int64_t rows;  ///< of a region, except the last ones
  int64_t columns;

  Grid(const Shape& s, int64_t threads) {
    // A million multiplications take about 5 us.
    const int64_t most = std::min(threads, s.rows * s.columns * s.inner / (1 << 21) + 1);
    const int64_t row_blocks = blocks_of(s.rows, kBlock);
    const int64_t column_blocks = blocks_of(s.columns, kBlock);
    // Packing a block takes about as long as multiplying a pair of blocks.
    const auto cost = [&](int64_t d, int64_t a) {
      const int64_t r = blocks_of(row_blocks, d);
      const int64_t c = blocks_of(column_blocks, a);
      return r * c + r + c;
    };
    for (int64_t d = 1; d <= std::min(most, row_blocks); ++d) {
      const int64_t a = std::min(most / d, column_blocks);
      if (cost(d, a) < cost(down, across)) {
        down = d;
        across = a;
      }
    }
    rows = blocks_of(row_blocks, down) * kBlock;
    columns = blocks_of(column_blocks, across) * kBlock;
    down = blocks_of(s.rows, rows);
    across = blocks_of(s.columns, columns);
  }
};

bool has_tiles() {
  if (!cpu_isa_allows("amx")) return false;
  // Linux enables the tile registers for a process that requests them.
  constexpr long kRequestPermission = 0x1023;
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

bool available() {
  static const bool has = has_tiles();
  return has;
}

bool pay(const Shape& s, int threads) {
  // Packed data must be used often enough, and little of the tiles may be padding. 64 x 400 gains 4
  // to 20 %, 64 x 128 nothing.
  constexpr int64_t kFewestTerms = 64;
  constexpr int64_t kUses = 48;
  if (s.rows <= 0 || s.columns <= 0 || s.inner < kFewestTerms) return false;
  if (s.accumulate && s.alpha != 1.0F && s.inner > kMostTerms) return false;
  const int64_t padded = blocks_of(s.rows, kBlock) * blocks_of(s.columns, kBlock) * kBlock * kBlock;
  if (padded * 5 > s.rows * s.columns * 6) return false;
  const Grid grid(s, threads);
  const int64_t rows = std::min(grid.rows, s.rows);
  const int64_t columns = std::min(grid.columns, s.columns);
  return rows * columns >= kUses * (rows + columns) && available();
}

Status multiply(CpuDevice& device, const Shape& s, const Operands& o) {
  const Grid grid(s, device.threads());
  const Plan plan(s, std::min(grid.rows, s.rows), std::min(grid.columns, s.columns));
  const int64_t regions = grid.down * grid.across;
  MILLRACE_ASSIGN_OR_RETURN(std::byte* const memory,
                            device.scratch(static_cast<size_t>(regions * plan.bytes()), 3));
  device.parallel_for(regions, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i / grid.across * grid.rows;
      const int64_t column = i % grid.across * grid.columns;
      const Region region{row, std::min(grid.rows, s.rows - row), column,
                          std::min(grid.columns, s.columns - column)};
      // The last regions must hold the same factor, and no more of it.
      Plan own = plan;
      own.held_lines = own.holds_a ? region.rows : region.columns;
      own.passing_lines = own.holds_a ? region.columns : region.rows;
      multiply_region(s, o, region, own, memory + i * plan.bytes());
    }
  });
  return Ok();
}

}  // namespace millrace::kernels::tiles
