export {
  AmbientLight, BoxGeometry, BufferAttribute, BufferGeometry, CapsuleGeometry, Color, ConeGeometry, CylinderGeometry,
  DirectionalLight, DoubleSide, Group, HemisphereLight, InstancedMesh, LineBasicMaterial, LineSegments, Matrix4, Mesh,
  MeshLambertMaterial, MeshBasicMaterial, Object3D, PerspectiveCamera, PlaneGeometry, Quaternion, Raycaster, Scene, SphereGeometry, Vector2,
  Vector3, WebGLRenderer, DynamicDrawUsage, SRGBColorSpace, Box3, EdgesGeometry,
} from "three";
export { OrbitControls } from "three/addons/controls/OrbitControls.js";
