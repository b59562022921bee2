#include "models/quantize/channel_scales.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "models/ops/fp8_rows.hpp"

namespace troupe {
namespace {

constexpr int awq_steps = 20;
constexpr std::int64_t rows_of_search = 256;
constexpr float least_scale = 1e-4F;

/// A matrix that reads the channels, some of its rows, and its inputs.
struct SearchedReader {
  const MatrixPlan* plan = nullptr;
  const InputStatistics* inputs = nullptr;
  HostTensor rows;
};

/// Each reader's tensor once.
std::vector<LayerTensor*> readers_of(const ScaleFold& fold, LayerTensors& tensors) {
  std::vector<LayerTensor*> readers;
  for (const ScaleFold::Reader& reader : fold.readers) {
    const auto place = tensors.find(reader.parameter, reader.expert);
    if (place && std::ranges::find(readers, place->tensor) == readers.end()) {
      readers.push_back(place->tensor);
    }
  }
  return readers;
}

/// At most so many rows, from all over the matrix.
HostTensor some_rows(const LayerTensor& tensor, std::int64_t most) {
  const std::int64_t count = std::min(most, tensor.rows());
  HostTensor rows(DType::f32, {count, tensor.columns()});
  for (std::int64_t i = 0; i < count; ++i) {
    const float* const from = tensor.row(i * tensor.rows() / count);
    std::copy_n(from, tensor.columns(), rows->as<float>() + i * tensor.columns());
  }
  return rows;
}

std::vector<SearchedReader> searched_readers(const ScaleFold& fold, const ScaleSearch& search) {
  const std::vector<LayerTensor*> readers = readers_of(fold, search.tensors);
  const std::int64_t most = std::max<std::int64_t>(
      16, rows_of_search / std::max<std::int64_t>(1, std::ssize(readers) / 4));
  std::vector<SearchedReader> searched;
  for (const LayerTensor* const tensor : readers) {
    const MatrixPlan* const plan = search.plan.find(tensor->name);
    const InputStatistics* const inputs = search.inputs.inputs_of(tensor->name);
    if (plan == nullptr || inputs == nullptr) continue;
    searched.push_back({plan, inputs, some_rows(*tensor, most)});
  }
  return searched;
}

/// A figure of each channel of the source, from one of each column of the readers: the mean of its
/// copies.
std::vector<double> of_channels(const ScaleFold& fold, const std::vector<double>& of_columns) {
  if (fold.copies == 1) return of_columns;
  const std::size_t copies = static_cast<std::size_t>(fold.copies);
  const std::size_t dim = static_cast<std::size_t>(fold.head_dim);
  std::vector<double> means(of_columns.size() / copies);
  for (std::size_t i = 0; i < of_columns.size(); ++i) {
    const std::size_t head = i / dim / copies;
    means[head * dim + i % dim] += of_columns[i] / static_cast<double>(copies);
  }
  return means;
}

/// The largest magnitude of each column.
std::vector<float> largest_of_columns(const LayerTensor& tensor, ThreadPool& threads) {
  const std::int64_t columns = tensor.columns();
  std::vector<std::vector<float>> found(static_cast<std::size_t>(threads.size()));
  threads.run([&](int member) {
    std::vector<float>& largest = found[static_cast<std::size_t>(member)];
    largest.resize(static_cast<std::size_t>(columns));
    const Range range = split_evenly(tensor.rows(), member, threads.size());
    for (std::int64_t i = range.begin; i < range.end; ++i) {
      const float* const row = tensor.row(i);
      for (std::int64_t j = 0; j < columns; ++j) {
        float& most = largest[static_cast<std::size_t>(j)];
        most = std::max(most, std::abs(row[j]));
      }
    }
  });
  for (const std::vector<float>& largest : found) {
    std::ranges::transform(found.front(), largest, found.front().begin(),
                           [](float a, float b) { return std::max(a, b); });
  }
  return std::move(found.front());
}

/// The error that rounding the scaled readers adds to their outputs.
double error_with(const std::vector<float>& scales, const std::vector<SearchedReader>& readers,
                  const ScaleSearch& search) {
  double error = 0.0;
  for (const SearchedReader& reader : readers) {
    const std::int64_t rows = reader.rows.view()[0], columns = reader.rows.view()[1];
    HostTensor scaled(DType::f32, reader.rows->shape());
    const auto for_all = [&](auto change) {
      search.threads.run([&](int member) {
        const Range range = split_evenly(rows, member, search.threads.size());
        for (std::int64_t i = range.begin; i < range.end; ++i) {
          const float* const from = reader.rows->as<float>() + i * columns;
          float* const to = scaled->as<float>() + i * columns;
          for (std::int64_t j = 0; j < columns; ++j) change(i, j, from[j], to[j]);
        }
      });
    };
    for_all([&](std::int64_t, std::int64_t j, float weight, float& out) {
      out = weight * scales[static_cast<std::size_t>(j)];
    });
    // The range of these rows, not of the whole matrix: scales in E4M3 hardly differ.
    const CodeGrid grid =
        grid_of(*reader.plan, search.options).with_range(largest_magnitude(scaled->span<float>()));
    const QuantizedMatrix rounded =
        round_to_nearest(scaled, grid, reader.plan->group, search.threads);
    for_all([&](std::int64_t i, std::int64_t j, float weight, float& out) {
      out = weight - rounded.number(i, j) / scales[static_cast<std::size_t>(j)];
    });
    error += reader.inputs->output_energy(scaled, search.threads);
  }
  return error;
}

}  // namespace

std::vector<float> awq_scales(const ScaleFold& fold, const ScaleSearch& search) {
  const std::vector<SearchedReader> readers = searched_readers(fold, search);
  if (readers.empty()) return {};
  std::vector<double> of_columns(static_cast<std::size_t>(readers.front().inputs->columns()));
  std::set<const InputStatistics*> seen;
  double rows = 0.0;
  for (const SearchedReader& reader : readers) {
    if (!seen.insert(reader.inputs).second) continue;
    rows += static_cast<double>(reader.inputs->rows());
    for (std::size_t i = 0; i < of_columns.size(); ++i) {
      of_columns[i] += reader.inputs->mean_magnitude(static_cast<std::int64_t>(i)) *
                       static_cast<double>(reader.inputs->rows());
    }
  }
  const std::vector<double> magnitudes = of_channels(fold, of_columns);
  std::vector<float> best;
  double least = error_with(std::vector<float>(of_columns.size(), 1.0F), readers, search);
  for (int step = 1; step <= awq_steps; ++step) {
    const double alpha = static_cast<double>(step) / awq_steps;
    std::vector<float> scales;
    for (const double magnitude : magnitudes) {
      const double scale = std::pow(magnitude / rows, alpha);
      scales.push_back(std::max(static_cast<float>(scale), least_scale));
    }
    const auto [smallest, largest] = std::ranges::minmax(scales);
    for (float& scale : scales) scale /= std::sqrt(smallest * largest);
    const double error = error_with(spread(fold, scales), readers, search);
    if (error >= least) continue;
    least = error;
    best = std::move(scales);
  }
  return best;
}

std::vector<float> smoothquant_scales(const ScaleFold& fold, const ScaleSearch& search) {
  std::vector<double> inputs, weights;
  for (const LayerTensor* const tensor : readers_of(fold, search.tensors)) {
    const InputStatistics* const seen = search.inputs.inputs_of(tensor->name);
    const auto columns = static_cast<std::size_t>(tensor->columns());
    inputs.resize(columns);
    weights.resize(columns);
    const std::vector<float> largest = largest_of_columns(*tensor, search.threads);
    for (std::size_t j = 0; j < columns; ++j) {
      weights[j] = std::max(weights[j], static_cast<double>(largest[j]));
      if (seen == nullptr) continue;
      const float input = seen->largest(static_cast<std::int64_t>(j));
      inputs[j] = std::max(inputs[j], static_cast<double>(input));
    }
  }
  if (std::ranges::all_of(inputs, [](double x) { return x == 0.0; })) return {};
  std::vector<float> scales;
  for (std::size_t j = 0; j < inputs.size(); ++j) {
    const double scale = std::sqrt(std::max(inputs[j], 1e-5) / std::max(weights[j], 1e-5));
    scales.push_back(std::max(static_cast<float>(scale), least_scale));
  }
  return scales;
}

}  // namespace troupe
