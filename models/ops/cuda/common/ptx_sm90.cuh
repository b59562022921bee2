// Hopper's own instructions (PTX ISA 8): asynchronous copies to shared memory, and matrix
// multiplication by a group of four warps.
#pragma once

#include <cstdint>

#include <cuda.h>

namespace troupe::cuda {

__device__ __forceinline__ std::uint32_t shared_address(const void* memory) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(memory));
}

/// Copies 16 bytes to shared memory asynchronously; zeros, without reading, unless `there`.
__device__ __forceinline__ void copy_async(std::uint32_t to, const void* from, bool there) {
  const int bytes = there ? 16 : 0;
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(bytes)
               : "memory");
}
/// Makes the copies since the last call a group.
__device__ __forceinline__ void close_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Waits until at most `groups` of this thread's copy groups are under way.
template <int groups>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
}
/// Stores four matrices of 8 x 8 elements of 16 bits, of which each lane holds two adjacent
/// elements in row lane / 4: lane 8 m + r gives the address of row r of matrix m. Called by a warp.
__device__ __forceinline__ void store_matrices(std::uint32_t to, const std::uint32_t (&pairs)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
               "r"(pairs[0]), "r"(pairs[1]), "r"(pairs[2]), "r"(pairs[3])
               : "memory");
}
/// The same, with each matrix transposed.
__device__ __forceinline__ void store_transposed(std::uint32_t to,
                                                 const std::uint32_t (&pairs)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
               "r"(pairs[0]), "r"(pairs[1]), "r"(pairs[2]), "r"(pairs[3])
               : "memory");
}
/// Loads 16 bytes of shared memory.
__device__ __forceinline__ uint4 load_shared(std::uint32_t from) {
  uint4 unit;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(unit.x), "=r"(unit.y), "=r"(unit.z), "=r"(unit.w)
               : "r"(from)
               : "memory");
  return unit;
}
/// Loads a float of shared memory.
__device__ __forceinline__ float load_shared_float(std::uint32_t from) {
  float number;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(number) : "r"(from) : "memory");
  return number;
}
/// Loads four floats of shared memory, aligned to 16 bytes.
__device__ __forceinline__ float4 load_shared_quad(std::uint32_t from) {
  const uint4 unit = load_shared(from);
  return {__uint_as_float(unit.x), __uint_as_float(unit.y), __uint_as_float(unit.z),
          __uint_as_float(unit.w)};
}
/// Loads two floats of shared memory.
__device__ __forceinline__ float2 load_shared_pair(std::uint32_t from) {
  float2 pair;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
               : "=f"(pair.x), "=f"(pair.y)
               : "r"(from)
               : "memory");
  return pair;
}
/// Makes shared memory that this thread wrote, or waited for others to write, visible to wgmma that
/// it issues from now on, or others after a barrier.
__device__ __forceinline__ void show_to_products() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// True in one thread of a warp, always the same; all call. What it does then may use registers of
/// the whole warp, which `lane == 0` keeps the compiler from.
__device__ __forceinline__ bool is_elected() {
  std::uint32_t elected = 0;
  asm volatile(
      "{\n.reg .pred chosen;\n"
      "elect.sync _|chosen, 0xFFFFFFFF;\n"
      "selp.u32 %0, 1, 0, chosen;\n}\n"
      : "=r"(elected));
  return elected != 0;
}

/// Brings a tensor map, a parameter of the kernel, to where the copy engine looks for it.
__device__ __forceinline__ void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

/// Makes eight bytes of shared memory a barrier: it opens each time `arrivals` threads have
/// arrived, in any way, and copy_bulk and copy_box have brought as many bytes as the expect_bytes
/// calls among them announced. One thread calls this.
__device__ __forceinline__ void open_barrier(std::uint32_t barrier, int arrivals = 1) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/// Like arrive, at another block's barrier: the one at this offset in `block` of the cluster. Does
/// not show that block what this thread has written, for which it had to wait for all its writes.
__device__ __forceinline__ void arrive_in_block(std::uint32_t barrier, std::uint32_t block) {
  asm volatile(
      "{\n.reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n}\n" ::"r"(barrier),
      "r"(block)
      : "memory");
}
/// The address that this offset has in `block` of the cluster.
__device__ __forceinline__ std::uint32_t address_in_block(std::uint32_t offset,
                                                          std::uint32_t block) {
  std::uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(offset), "r"(block));
  return there;
}
/// Stores 16 bytes in another block of the cluster, for which the barrier there waits as for
/// copies: both are addresses there.
__device__ __forceinline__ void store_in_block(std::uint32_t to, float4 quad,
                                               std::uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(to),
      "f"(quad.x), "f"(quad.y), "f"(quad.z), "f"(quad.w), "r"(barrier)
      : "memory");
}
/// Arrives when this thread's copy_async calls so far are complete.
__device__ __forceinline__ void arrive_after_copies(std::uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
/// After open_barrier: makes barriers visible to copies.
__device__ __forceinline__ void show_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
/// Arrives, and makes the barrier also wait for this many bytes.
__device__ __forceinline__ void expect_bytes(std::uint32_t barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
/// Copies a multiple of 16 bytes, both addresses multiples of 16.
__device__ __forceinline__ void copy_bulk(std::uint32_t to, const void* from, std::uint32_t bytes,
                                          std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}
/// Copies a box of a tensor (tensor_map.hpp) that begins at these coordinates, the fastest first.
__device__ __forceinline__ void copy_box(std::uint32_t to, const CUtensorMap* map, int c0, int c1,
                                         int c2, int c3, int c4, std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4, %5, %6}], [%7];" ::"r"(to),
      "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4), "r"(barrier)
      : "memory");
}
/// Like copy_box, to the same offset in each block of the cluster whose bit is set in `blocks`, and
/// with the barrier at this offset there.
__device__ __forceinline__ void copy_box_to_blocks(std::uint32_t to, const CUtensorMap* map, int c0,
                                                   int c1, int c2, int c3, int c4,
                                                   std::uint32_t barrier, std::uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3, %4, %5, %6}], [%7], %8;" ::"r"(to),
      "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4), "r"(barrier), "h"(blocks)
      : "memory");
}
/// Releases all but this many of each thread's registers to other groups of the block; called by a
/// group of four warps.
template <int registers>
__device__ __forceinline__ void leave_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
/// Acquires this many of the registers released by others, once they are; called by a group of four
/// warps.
template <int registers>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}
/// Waits, any thread, until the barrier has opened for the (2 n + odd)th time, counting from 0.
__device__ __forceinline__ void wait_for_bytes(std::uint32_t barrier, std::uint32_t odd) {
  asm volatile(
      "{\n.reg .pred there;\nagain%=:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 there, [%0], %1;\n"
      "@!there bra again%=;\n}\n" ::"r"(barrier),
      "r"(odd)
      : "memory");
}

/// Describes a tile in shared memory to `wgmma`: rows of 64 bf16, the 16-byte units of row r
/// swizzled by unit ^ (r % 8), so that no two of eight rows share a bank. `address` is that of the
/// tile's first row, a multiple of 1,024, plus 32 bytes for each 16 columns.
__device__ __forceinline__ std::uint64_t tile_descriptor(std::uint32_t address) {
  constexpr std::uint64_t eight_rows = 1024 >> 4, swizzle_128_bytes = 1;
  return ((address & 0x3ffffU) >> 4) | (std::uint64_t{1} << 16) | (eight_rows << 32) |
         (swizzle_128_bytes << 62);
}

__device__ __forceinline__ void open_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void close_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Waits until at most `groups` of this warp's wgmma groups are under way.
template <int groups>
__device__ __forceinline__ void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(groups) : "memory");
}
/// Keeps the compiler from moving accesses to `sums` across this.
template <int count>
__device__ __forceinline__ void pin(float (&sums)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}
template <int count>
__device__ __forceinline__ void pin(int (&sums)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+r"(sums[i])::"memory");
}

// `in` is the constraint of a sum's register.
#define TROUPE_SUMS_4(in, i) in(d[(i)]), in(d[(i) + 1]), in(d[(i) + 2]), in(d[(i) + 3])
#define TROUPE_SUMS_8(in, i) TROUPE_SUMS_4(in, i), TROUPE_SUMS_4(in, (i) + 4)
#define TROUPE_SUMS_16(in, i) TROUPE_SUMS_8(in, i), TROUPE_SUMS_8(in, (i) + 8)
#define TROUPE_SUMS_32(in, i) TROUPE_SUMS_16(in, i), TROUPE_SUMS_16(in, (i) + 16)
#define TROUPE_SUMS_48(in) TROUPE_SUMS_32(in, 0), TROUPE_SUMS_16(in, 32)
#define TROUPE_SUMS_64(in) TROUPE_SUMS_32(in, 0), TROUPE_SUMS_32(in, 32)
#define TROUPE_SUMS_96(in) TROUPE_SUMS_64(in), TROUPE_SUMS_32(in, 64)
#define TROUPE_SUMS_128(in) TROUPE_SUMS_64(in), TROUPE_SUMS_32(in, 64), TROUPE_SUMS_32(in, 96)
#define TROUPE_MULTIPLY(shape, types, registers, left, right, adds) \
  "{\n.reg .pred adds;\nsetp.ne.b32 adds, " adds                    \
  ", 0;\n"                                                          \
  "wgmma.mma_async.sync.aligned." shape types " {" registers "}, " left ", " right ", adds"
#define TROUPE_NUMBERS_16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define TROUPE_NUMBERS_32 \
  TROUPE_NUMBERS_16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define TROUPE_NUMBERS_48 \
  TROUPE_NUMBERS_32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define TROUPE_NUMBERS_64 \
  TROUPE_NUMBERS_48 ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define TROUPE_NUMBERS_96                                                                        \
  TROUPE_NUMBERS_64                                                                              \
  ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86" \
  ",%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define TROUPE_NUMBERS_128                                                                      \
  TROUPE_NUMBERS_64                                                                             \
  ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,"   \
  "%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106," \
  "%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,"  \
  "%125,%126,%127"
/// Defines wgmma or another for as many columns as there are sums.
#define TROUPE_WGMMA(name, Sum, count, shape, types, end, sums, registers, left, right, adds)      \
  __device__ __forceinline__ void name(std::uint64_t of_left, std::uint64_t of_right, int adds_to, \
                                       Sum(&d)[count]) {                                           \
    asm volatile(TROUPE_MULTIPLY(shape, types, registers, left, right, adds) end                   \
                 : sums                                                                            \
                 : "l"(of_left), "l"(of_right), "r"(adds_to));                                     \
  }
#define TROUPE_WGMMAS(name, Sum, in, k, types, end)                                              \
  TROUPE_WGMMA(name, Sum, 4, "m64n8" k, types, end, TROUPE_SUMS_4(in, 0), "%0,%1,%2,%3", "%4",   \
               "%5", "%6")                                                                       \
  TROUPE_WGMMA(name, Sum, 8, "m64n16" k, types, end, TROUPE_SUMS_8(in, 0),                       \
               "%0,%1,%2,%3,%4,%5,%6,%7", "%8", "%9", "%10")                                     \
  TROUPE_WGMMA(name, Sum, 16, "m64n32" k, types, end, TROUPE_SUMS_16(in, 0), TROUPE_NUMBERS_16,  \
               "%16", "%17", "%18")                                                              \
  TROUPE_WGMMA(name, Sum, 32, "m64n64" k, types, end, TROUPE_SUMS_32(in, 0), TROUPE_NUMBERS_32,  \
               "%32", "%33", "%34")                                                              \
  TROUPE_WGMMA(name, Sum, 48, "m64n96" k, types, end, TROUPE_SUMS_48(in), TROUPE_NUMBERS_48,     \
               "%48", "%49", "%50")                                                              \
  TROUPE_WGMMA(name, Sum, 64, "m64n128" k, types, end, TROUPE_SUMS_64(in), TROUPE_NUMBERS_64,    \
               "%64", "%65", "%66")                                                              \
  TROUPE_WGMMA(name, Sum, 96, "m64n192" k, types, end, TROUPE_SUMS_96(in), TROUPE_NUMBERS_96,    \
               "%96", "%97", "%98")                                                              \
  TROUPE_WGMMA(name, Sum, 128, "m64n256" k, types, end, TROUPE_SUMS_128(in), TROUPE_NUMBERS_128, \
               "%128", "%129", "%130")

/// d = left . right^T, plus d if `adds_to`, for 32 bytes of k: 16 columns of bf16 or 32 codes. left
/// has 64 rows, right 2 * count (wgmma m64nNk16 or m64nNk32). In warp w of the group, lane l holds
/// in d[4 j + 2 h + i] row 16 w + l / 4 + 8 h, column 8 j + 2 (l % 4) + i. Asynchronous between
/// open_products and a wait.
TROUPE_WGMMAS(wgmma, float, "+f", "k16", ".f32.bf16.bf16", ", 1, 1, 0, 0;\n}\n")
/// With E4M3 codes, hardware adds with fewer bits than fp32 has (13 of fraction after the point of
/// the largest): sums over long k are better made of several.
TROUPE_WGMMAS(wgmma_e4m3, float, "+f", "k32", ".f32.e4m3.e4m3", ", 1, 1;\n}\n")
/// Of signed bytes; sums are exact.
TROUPE_WGMMAS(wgmma_s8, int, "+r", "k32", ".s32.s8.s8", ";\n}\n")

#undef TROUPE_WGMMAS
#undef TROUPE_WGMMA
#undef TROUPE_NUMBERS_128
#undef TROUPE_NUMBERS_96
#undef TROUPE_NUMBERS_64
#undef TROUPE_NUMBERS_48
#undef TROUPE_NUMBERS_32
#undef TROUPE_NUMBERS_16
#undef TROUPE_MULTIPLY
#undef TROUPE_SUMS_128
#undef TROUPE_SUMS_96
#undef TROUPE_SUMS_64
#undef TROUPE_SUMS_48
#undef TROUPE_SUMS_32
#undef TROUPE_SUMS_16
#undef TROUPE_SUMS_8
#undef TROUPE_SUMS_4

}  // namespace troupe::cuda
