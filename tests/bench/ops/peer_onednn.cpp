#include "tests/bench/ops/peers.hpp"

#ifdef TROUPE_HAVE_DNNL
#include <memory>
#include <vector>

#include <oneapi/dnnl/dnnl.hpp>

namespace troupe::bench {

std::function<void()> onednn_product(std::int64_t m, std::int64_t n, std::int64_t k) {
  using dnnl::memory;
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const auto type = memory::data_type::f32;
  const memory::desc x({m, k}, type, memory::format_tag::ab);
  const memory::desc any({k, n}, type, memory::format_tag::any);
  const memory::desc out({m, n}, type, memory::format_tag::ab);
  const dnnl::matmul::primitive_desc product(dnnl::matmul::desc(x, any, out), engine);
  struct State {
    dnnl::matmul matmul;
    dnnl::stream stream;
    memory x, weight, out;
  };
  auto state =
      std::make_shared<State>(State{dnnl::matmul(product), dnnl::stream(engine), memory(x, engine),
                                    memory(product.weights_desc(), engine), memory(out, engine)});
  const auto fill = [](memory& target, std::size_t bytes) {
    auto* data = static_cast<float*>(target.get_data_handle());
    for (std::size_t i = 0; i < bytes / 4; ++i) data[i] = static_cast<float>(i % 17) * 0.01F;
  };
  fill(state->x, x.get_size());
  fill(state->weight, product.weights_desc().get_size());
  return [state] {
    state->matmul.execute(
        state->stream,
        {{DNNL_ARG_SRC, state->x}, {DNNL_ARG_WEIGHTS, state->weight}, {DNNL_ARG_DST, state->out}});
    state->stream.wait();
  };
}

}  // namespace troupe::bench

#else

namespace troupe::bench {
std::function<void()> onednn_product(std::int64_t, std::int64_t, std::int64_t) { return {}; }
}  // namespace troupe::bench

#endif
