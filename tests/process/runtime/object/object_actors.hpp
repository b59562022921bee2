#pragma once

#include <chrono>
#include <fstream>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/resource.h>
#include <unistd.h>

#include "runtime/actor/cluster.hpp"
#include "tests/support/comes_true.hpp"

namespace troupe::test {

using namespace std::chrono_literals;

inline constexpr auto limit = 30s;

using Floats = std::vector<float>;

/// An object that is decoded, with another object in it.
struct Chapter {
  std::string title;
  ObjectRef<Floats> figures;
  std::vector<ObjectRef<std::string>> notes;
  template <class Archive>
  void fields(Archive& archive) {
    archive(title, figures, notes);
  }
};

/// Is given an object when it is made.
class Keeper {
 public:
  Keeper(ActorContext& context, ObjectRef<Floats> ref) : context_(context), ref_(std::move(ref)) {}
  Result<double> sum() {
    TROUPE_TRY(const auto view, context_.get(ref_, limit));
    return std::accumulate(view.get().begin(), view.get().end(), 0.0);
  }
  int pid_after_forgetting() {
    ref_ = {};
    return ::getpid();
  }

  static constexpr std::string_view actor_type = "Keeper";
  using Arguments = troupe::Arguments<ObjectRef<Floats>>;
  using Methods = troupe::Methods<&Keeper::sum, &Keeper::pid_after_forgetting>;

 private:
  ActorContext& context_;
  ObjectRef<Floats> ref_;
};

/// Reads, keeps and makes objects.
class Reader {
 public:
  explicit Reader(ActorContext& context) : context_(context) {}

  int pid() { return ::getpid(); }
  std::string node() { return context_.node(); }
  Result<double> sum(const ObjectRef<Floats>& ref) {
    TROUPE_TRY(const auto view, context_.get(ref, limit));
    return std::accumulate(view.get().begin(), view.get().end(), 0.0);
  }
  Result<std::string> text(const ObjectRef<std::string>& ref) {
    TROUPE_TRY(const auto view, context_.get(ref, limit));
    return std::string(*view);
  }
  /// What get says while this process can open no descriptor.
  Result<std::string> get_without_descriptors(const ObjectRef<Floats>& ref) {
    const UniqueFd next(::dup(0));
    rlimit before{};
    ::getrlimit(RLIMIT_NOFILE, &before);
    const rlimit none{static_cast<rlim_t>(next.get()), before.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &none);
    const auto view = context_.get(ref, limit);
    ::setrlimit(RLIMIT_NOFILE, &before);
    return std::string(view.ok() ? "ok" : to_string(view.error().code));
  }
  /// Where the object lies in this process, as /proc/self/maps has it.
  Result<std::string> mapping_of(const ObjectRef<Floats>& ref);
  void keep(const ObjectRef<Floats>& ref) { kept_ = ref; }
  Result<double> sum_of_kept() { return sum(kept_); }
  void forget() {
    kept_ = {};
    view_.reset();
  }
  Result<double> view_kept() {
    TROUPE_TRY(auto view, context_.get(kept_, limit));
    view_.emplace(std::move(view));
    return sum_of_view();
  }
  double sum_of_view() { return std::accumulate(view_->get().begin(), view_->get().end(), 0.0); }
  void drop_ref() { kept_ = {}; }
  Result<ObjectRef<Floats>> make(std::uint64_t count, float value) {
    return context_.put(Floats(count, value));
  }
  Result<ObjectRef<Floats>> make_and_keep(std::uint64_t count, float value) {
    TROUPE_TRY(kept_, context_.put(Floats(count, value)));
    return kept_;
  }
  Result<double> sum_through(const ActorHandle<Reader>& other, const ObjectRef<Floats>& ref) {
    return other.call<&Reader::sum>(ref).get(limit);
  }
  Result<double> sum_of_chapter(const ObjectRef<Chapter>& ref) {
    TROUPE_TRY(const auto chapter, context_.get(ref, limit));
    TROUPE_TRY(const double figures, sum(chapter->figures));
    double notes = 0;
    for (const auto& note : chapter->notes) {
      TROUPE_TRY(const auto words, context_.get(note, limit));
      notes += static_cast<double>(words.get().size());
    }
    return figures + notes;
  }
  std::vector<std::uint64_t> counts() {
    const auto counts = context_.objects().counts();
    return {counts.owned, counts.held, counts.shares, counts.pulls, counts.spills, counts.restores};
  }

  /// Keeps the result of a task here, for its owner.
  Result<void> hold_for(const ObjectRef<Floats>& ref, std::uint64_t count, float value) {
    const Floats result(count, value);
    return context_.objects().hold_result(ref.share()->address(), std::as_bytes(std::span(result)));
  }
  /// Puts so many objects of `count` floats and keeps them.
  Result<void> fill(std::uint64_t objects, std::uint64_t count) {
    for (std::uint64_t i = 0; i < objects; ++i) {
      TROUPE_TRY(auto ref, context_.put(Floats(count, static_cast<float>(i))));
      many_.push_back(std::move(ref));
    }
    return {};
  }
  Result<double> sum_of_first() { return sum(many_.front()); }
  Result<ActorHandle<Keeper>> spawn_keeper(const ObjectRef<Floats>& ref, int max_restarts) {
    return context_.spawn<Keeper>({.max_restarts = max_restarts}, ref).get(limit);
  }

  static constexpr std::string_view actor_type = "Reader";
  using Methods = troupe::Methods<
      &Reader::pid, &Reader::node, &Reader::sum, &Reader::text, &Reader::get_without_descriptors,
      &Reader::mapping_of, &Reader::keep, &Reader::sum_of_kept, &Reader::forget, &Reader::view_kept,
      &Reader::sum_of_view, &Reader::drop_ref, &Reader::make, &Reader::make_and_keep,
      &Reader::sum_through, &Reader::sum_of_chapter, &Reader::counts, &Reader::hold_for,
      &Reader::fill, &Reader::sum_of_first, &Reader::spawn_keeper>;

 private:
  ActorContext& context_;
  ObjectRef<Floats> kept_;
  std::vector<ObjectRef<Floats>> many_;
  std::optional<ObjectView<Floats>> view_;
};

inline Result<std::string> Reader::mapping_of(const ObjectRef<Floats>& ref) {
  TROUPE_TRY(const auto view, context_.get(ref, limit));
  const auto at = reinterpret_cast<std::uintptr_t>(view.bytes().data());
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const auto first = std::stoull(line, nullptr, 16);
    const auto last = std::stoull(line.substr(line.find('-') + 1), nullptr, 16);
    if (at >= first && at < last) return line;
  }
  return fail(ErrorCode::not_found, "no mapping");
}

inline std::unique_ptr<Cluster> start_cluster(ClusterOptions options = {}) {
  auto cluster = Cluster::start(std::move(options));
  if (!cluster.ok()) throw std::runtime_error(cluster.error().message);
  return *std::move(cluster);
}

template <class T>
T must(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.error().message);
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

}  // namespace troupe::test
