#pragma once

#include <string>
#include <vector>

#include "runtime/base/result.hpp"

namespace troupe {

/// Extents of the process mesh; each at least 1.
struct MeshShape {
  int data = 1;      ///< replicas
  int pipeline = 1;  ///< stages of a replica
  int context = 1;   ///< ranks that share a sequence
  int tensor = 1;    ///< ranks that share each matrix

  int world_size() const { return data * pipeline * context * tensor; }
  bool operator==(const MeshShape&) const = default;
};

enum class MeshDimension { data, pipeline, context, tensor };

/// A rank's coordinates; each from 0 to the extent of the shape.
struct MeshCoordinates {
  int data = 0;
  int stage = 0;
  int context = 0;
  int tensor = 0;

  bool operator==(const MeshCoordinates&) const = default;
};

/// The experts that a rank holds, and how much of each. The ranks of a stage (tensor fastest, then
/// context, then data) are numbered i; `expert_rank` is i % E. The remaining factor i / E first
/// splits each expert over the tensor ranks (if there are more of them than E) and then replicates
/// it.
struct ExpertPlace {
  int expert_rank = 0;  ///< 0..E-1; expert e is on expert_rank e / (experts / E)
  int split_index = 0;  ///< which part of each of its experts this rank holds
  int split_count = 1;  ///< parts an expert is split into: tensor / E, at least 1
  int copy_index = 0;   ///< which replica of that part
  int copy_count = 1;

  bool operator==(const ExpertPlace&) const = default;
};

/// The ranks of a job as a mesh: rank = ((data * pipeline + stage) * context + c) * tensor + t, so
/// tensor neighbours are neighbours in rank (and on a node), and a replica is a contiguous range. A
/// value; all functions are pure. Ranks and coordinates given must be inside (asserted).
class Mesh {
 public:
  /// The mesh of one rank.
  Mesh() = default;
  /// `expert_parallel_size` is E: 1 for models without experts. Errors: invalid_argument for an
  /// extent below 1 and where "X does not divide Y": E must divide tensor x context x data, and
  /// be reached by filling tensor, then context, then data (each divides what is left of E, or is
  /// divided by it). `data_parallel_attention`: the replicas of a step domain share dense matrices
  /// (dense_group); it takes at least two replicas and one context rank.
  static Result<Mesh> create(MeshShape shape, int expert_parallel_size = 1,
                             bool data_parallel_attention = false);

  const MeshShape& shape() const { return shape_; }
  int world_size() const { return shape_.world_size(); }
  int expert_parallel_size() const { return expert_parallel_size_; }
  bool data_parallel_attention() const { return data_parallel_attention_; }

  MeshCoordinates coordinates(int rank) const;
  int rank(const MeshCoordinates& at) const;

  /// Returns the ranks that differ from `rank` in this dimension only, itself included, in the
  /// order of that coordinate; so rank's index in it is its coordinate.
  std::vector<int> group(MeshDimension dimension, int rank) const;

  ExpertPlace expert_place(int rank) const;
  /// Returns the ranks that exchange tokens for their experts: together they hold every part of
  /// every expert once; the one with expert_rank e and split_index j is at j * E + e. They are
  /// whole tensor groups, of one replica or of several.
  std::vector<int> dispatch_group(int rank) const;
  /// The number of neighbouring replicas that exchange rows, and so must step together: those
  /// that experts are spread over; if experts stay within a replica 1, or all with
  /// data_parallel_attention.
  int replicas_per_domain() const;
  /// The groups of replicas that step together.
  int step_domains() const { return shape_.data / replicas_per_domain(); }
  /// Returns the ranks that share each dense matrix but those of attention: the tensor ranks; with
  /// data_parallel_attention those of all replicas of the step domain, replica after replica.
  std::vector<int> dense_group(int rank) const;
  int dense_size() const;           ///< of dense_group
  int dense_index(int rank) const;  ///< of `rank` in its dense_group
  /// Returns the expert_rank that holds expert `expert` of `experts`, which E must divide
  /// (asserted).
  int expert_rank_of(int expert, int experts) const;

  /// "data 1, stage 0, context 0, tensor 1", for logs and tables.
  std::string describe(int rank) const;

 private:
  Mesh(MeshShape shape, int expert_parallel_size, bool data_parallel_attention)
      : shape_(shape),
        expert_parallel_size_(expert_parallel_size),
        data_parallel_attention_(data_parallel_attention) {}
  int stage_index(int rank) const;
  int rank_at_stage_index(int like_rank, int index) const;

  MeshShape shape_;
  int expert_parallel_size_ = 1;
  bool data_parallel_attention_ = false;
};

/// Returns invalid_argument "<divisor_name> <divisor> does not divide <value_name> <value>" unless
/// it does. For every size that a person wrote.
Result<void> check_divides(std::string_view divisor_name, long divisor, std::string_view value_name,
                           long value);

}  // namespace troupe
