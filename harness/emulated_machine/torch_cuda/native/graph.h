// Captured graphs: the operators and launches between capture_begin and capture_end, to be executed again.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "device.h"

namespace emulated {

struct Graph {
  std::vector<std::function<void()>> nodes;
  void replay() const {
    for (const auto& node : nodes) {
      node();
    }
  }
};

// The graph under capture. One at a time for the process: autograd's threads record into it too.
inline std::shared_ptr<Graph>& current_graph() {
  static std::shared_ptr<Graph> graph;
  return graph;
}

inline void begin_capture(const std::shared_ptr<Graph>& graph) {
  TORCH_CHECK(!current_graph(), "HIP error: a graph is already being captured in this process");
  graph->nodes.clear();
  current_graph() = graph;
  capturing() = true;
}

inline void end_capture() {
  TORCH_CHECK(current_graph(), "HIP error: no graph is being captured");
  capturing() = false;
  current_graph() = nullptr;
}

inline void record_node(std::function<void()> node) {
  static std::mutex mutex;
  std::lock_guard<std::mutex> guard(mutex);
  current_graph()->nodes.push_back(std::move(node));
}

inline void refuse_in_capture(const std::string& what) {
  TORCH_CHECK(
      !capturing(), "HIP error: operation not permitted when stream is capturing\n", what,
      " needs values on the host, which do not exist before the graph is replayed");
}

}  // namespace emulated
