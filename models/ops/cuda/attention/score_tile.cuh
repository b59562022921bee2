#pragma once

#include <cstdint>
#include <type_traits>

#include <mma.h>

#include "parallel/device/cuda/device_math.cuh"

namespace troupe::cuda {

// Dot products of a tile of queries with 64 keys, by a block of 256 threads: for what reads scores
// itself, where attention reads only what they weigh. Each is a sum over ascending elements, or
// steps of 16 of them, so it has the same bits in any tile.
//
// Queries and keys come from a Source:
//     int elements;                    // of a query and of a key
//     const T* query(int index);       // null: none
//     const Stored* key(int entry);    // null: none

/// A tile by CUDA cores, for any elements.
template <int queries_>
struct ScoreTile {
  static constexpr int threads = 256, keys = 64, tile_queries = queries_;
  /// Threads with the same key share the queries among them.
  static constexpr int threads_of_key = threads / keys;
  static constexpr int queries_of_thread = tile_queries / threads_of_key;
  static constexpr int elements = 32;  ///< in shared memory at a time

  alignas(16) float query_elements[tile_queries][elements + 4];
  float key_elements[keys][elements + 1];
  float scores[tile_queries][keys];

  /// Computes `finish(query, entry, dot product)` of the queries from `first_query` on with the
  /// entries from `first_entry` on. All threads call it, and may read `scores` after.
  template <class Source, class Finish>
  __device__ void compute(const Source& source, int first_query, int first_entry, Finish finish) {
    const int key = static_cast<int>(threadIdx.x) % keys;
    const int first = static_cast<int>(threadIdx.x) / keys * queries_of_thread;
    float sums[queries_of_thread] = {};
    for (int begin = 0; begin < source.elements; begin += elements) {
      __syncthreads();
      load_elements(source, first_query, first_entry, begin);
      __syncthreads();
      for (int d = 0; d < elements; d += 4) {
        const float* own = &key_elements[key][d];
#pragma unroll
        for (int i = 0; i < queries_of_thread; ++i) {
          const float4 part = *reinterpret_cast<const float4*>(&query_elements[first + i][d]);
          sums[i] = fmaf(part.x, own[0], sums[i]);
          sums[i] = fmaf(part.y, own[1], sums[i]);
          sums[i] = fmaf(part.z, own[2], sums[i]);
          sums[i] = fmaf(part.w, own[3], sums[i]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < queries_of_thread; ++i) {
      scores[first + i][key] = finish(first_query + first + i, first_entry + key, sums[i]);
    }
    __syncthreads();
  }

 private:
  /// Loads the elements from `begin` on; 0 where there are none.
  template <class Source>
  __device__ void load_elements(const Source& source, int first_query, int first_entry, int begin) {
    const int d = static_cast<int>(threadIdx.x) % elements;
    const int first = static_cast<int>(threadIdx.x) / elements;
    const bool is_inside = begin + d < source.elements;
    for (int i = first; i < tile_queries; i += threads / elements) {
      const auto* from = is_inside ? source.query(first_query + i) : nullptr;
      query_elements[i][d] = from == nullptr ? 0.0F : load(from + begin + d);
    }
    for (int i = first; i < keys; i += threads / elements) {
      const auto* from = is_inside ? source.key(first_entry + i) : nullptr;
      key_elements[i][d] = from == nullptr ? 0.0F : load(from + begin + d);
    }
  }
};

/// A tile by tensor cores, of bf16 and elements that 16 divides.
template <int queries_>
struct TensorScoreTile {
  static constexpr int threads = 256, keys = 64, tile_queries = queries_;
  static constexpr int elements = 64;  ///< in shared memory at a time
  static constexpr int row = elements + 8;
  static constexpr int step = 16;  ///< of a warp's product, in each direction

  alignas(32) bf16 query_elements[tile_queries][row];
  alignas(32) bf16 key_elements[keys][row];
  alignas(32) float scores[tile_queries][keys];

  /// As ScoreTile::compute.
  template <class Source, class Finish>
  __device__ void compute(const Source& source, int first_query, int first_entry, Finish finish) {
    namespace wmma = nvcuda::wmma;
    constexpr int warps = threads / 32, columns = keys / step;
    constexpr int tiles = tile_queries / step * columns,
                  tiles_of_warp = (tiles + warps - 1) / warps;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    wmma::fragment<wmma::accumulator, step, step, step, float> sums[tiles_of_warp];
    for (auto& sum : sums) wmma::fill_fragment(sum, 0.0F);
    for (int begin = 0; begin < source.elements; begin += elements) {
      __syncthreads();
      load_rows(query_elements, first_query, begin, source.elements,
                [&](int index) { return source.query(index); });
      load_rows(key_elements, first_entry, begin, source.elements,
                [&](int entry) { return source.key(entry); });
      __syncthreads();
#pragma unroll
      for (int i = 0; i < tiles_of_warp; ++i) {
        const int tile = warp * tiles_of_warp + i;
        if (tile >= tiles) break;
        for (int k = 0; k < elements; k += step) {
          wmma::fragment<wmma::matrix_a, step, step, step, bf16, wmma::row_major> a;
          wmma::fragment<wmma::matrix_b, step, step, step, bf16, wmma::col_major> b;
          wmma::load_matrix_sync(a, &query_elements[tile / columns * step][k], row);
          wmma::load_matrix_sync(b, &key_elements[tile % columns * step][k], row);
          wmma::mma_sync(sums[i], a, b, sums[i]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < tiles_of_warp; ++i) {
      const int tile = warp * tiles_of_warp + i;
      if (tile >= tiles) break;
      wmma::store_matrix_sync(&scores[tile / columns * step][tile % columns * step], sums[i], keys,
                              wmma::mem_row_major);
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < tile_queries * keys; i += threads) {
      float& score = scores[i / keys][i % keys];
      score = finish(first_query + i / keys, first_entry + i % keys, score);
    }
    __syncthreads();
  }

 private:
  /// Loads the elements from `begin` on of the rows from `first` on; 0 where there are none.
  template <int rows, class Find>
  __device__ void load_rows(bf16 (&to)[rows][row], int first, int begin, int end, Find find) {
    constexpr int at_once = sizeof(int4) / sizeof(bf16), loads = elements / at_once;
    for (int i = static_cast<int>(threadIdx.x); i < rows * loads; i += threads) {
      const int d = i % loads * at_once;
      const bf16* from = begin + d < end ? find(first + i / loads) : nullptr;
      *reinterpret_cast<int4*>(&to[i / loads][d]) =
          from == nullptr ? int4{} : *reinterpret_cast<const int4*>(from + begin + d);
    }
  }
};

/// Calls body with a null pointer to the fastest tile for so many queries of T and keys of Stored.
template <class T, class Stored, class Body>
void with_score_tile(std::int64_t queries, std::int64_t elements, Body&& body) {
  // Of few queries most of a large tile would be empty.
  const bool are_few = queries <= 16;
  if constexpr (std::is_same_v<T, bf16> && std::is_same_v<Stored, bf16>) {
    if (elements % 16 == 0) {
      if (are_few) return body(static_cast<TensorScoreTile<16>*>(nullptr));
      return body(static_cast<TensorScoreTile<64>*>(nullptr));
    }
  }
  if (are_few) return body(static_cast<ScoreTile<8>*>(nullptr));
  body(static_cast<ScoreTile<64>*>(nullptr));
}

}  // namespace troupe::cuda
